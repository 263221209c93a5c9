#!/bin/sh
# Installs what the demo and the tests need: Slurm and munge with apt, this package and its extras into a virtual
# environment. Safe to run again. Usage: tools/setup.sh VENV [EXTRAS]
set -eu
venv=$1 extras=${2:-torch,dev}
cd "$(dirname "$0")/.."

packages="slurmctld slurmd slurm-client munge gcc libc6-dev" # gcc: the tests build a stand-in for NVML
commands="slurmctld slurmd scontrol munged gcc"
case $extras in
    *dev*) # the tests of alerts, metrics and accounting ask the real ones
        packages="$packages shellcheck prometheus-alertmanager prometheus slurmdbd mariadb-server"
        commands="$commands shellcheck prometheus-alertmanager promtool slurmdbd mariadbd"
        ;;
esac
missing=
for command in $commands; do
    [ -x "/usr/sbin/$command" ] || [ -x "/usr/bin/$command" ] || missing=$packages
done

# The interpreter must be one that every account can start: jobs run as an ordinary user. A Python below /root is not.
python=
for candidate in ${PYTHON:-} /usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 /usr/bin/python3.10; do
    if [ -x "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || { echo "setup: no Python 3.10 or newer in /usr/bin; set PYTHON=/path/to/python3" >&2; exit 1; }
"$python" -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"

if [ -n "$missing" ]; then
    echo "setup: installing with apt: $missing"
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of names
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing
fi

if [ ! -x "$venv/bin/pip" ]; then
    echo "setup: creating $venv with $python"
    "$python" -m venv "$venv"
fi
echo "setup: installing slurm_ft and its extras ($extras) into $venv; the first time takes a while"
"$venv/bin/python" -m pip install --quiet --constraint constraints.txt hatchling
"$venv/bin/python" -m pip install --quiet --no-build-isolation --constraint constraints.txt ".[$extras]"
"$venv/bin/python" -m pip install --quiet --no-build-isolation --no-deps --force-reinstall .
