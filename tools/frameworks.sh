#!/bin/sh
# Makes the environments in which tests/frameworks and tests/specimens run: the versions that users pin, the newest ones,
# and one for each other framework. Safe to run again: a set whose requirements did not change is left alone. Prints
# nothing unless there is something to do.
# Usage: tools/frameworks.sh [DIRECTORY] [SET...]
set -eu
cd "$(dirname "$0")/.."
directory=${1:-/var/tmp/slurm_ft-frameworks}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- pins current
python=${PYTHON:-/usr/bin/python3}

for name in "$@"; do
    requirements=tests/frameworks/requirements-$name.txt
    [ -e "$requirements" ] || requirements=tests/specimens/requirements-$name.txt
    venv=$directory/$name
    stamp=$venv/requirements.txt
    cmp -s "$requirements" "$stamp" && continue
    echo "frameworks: installing $requirements into $venv (1.3 GB; the first time takes minutes)"
    mkdir -p "$directory"
    [ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
    # deepspeed's build imports torch, so it comes second and builds in this environment.
    "$venv/bin/python" -m pip install --quiet wheel setuptools ninja
    grep -v '^deepspeed' "$requirements" > "$venv/first.txt"
    "$venv/bin/python" -m pip install --quiet -r "$venv/first.txt"
    "$venv/bin/python" -m pip install --quiet --no-build-isolation -r "$requirements"
    without=$(sed -n 's/^# without: //p' "$requirements")
    # shellcheck disable=SC2086 # a list of names
    [ -z "$without" ] || "$venv/bin/python" -m pip uninstall --quiet --yes $without
    cp "$requirements" "$stamp"
done
