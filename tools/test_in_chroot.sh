#!/bin/sh
# The part of tools/test_matrix.sh that runs inside of a chroot: sets up Python, then tests.
# Usage: tools/test_in_chroot.sh VENV
set -eu
venv=$1
cd "$(dirname "$0")/.."
tools/setup.sh "$venv" test
# The source tree is read-only here. There is no PyTorch for the demo, the tutorial and the trainings.
export PYTHONDONTWRITEBYTECODE=1
for name in demo templates tutorial validators; do
    set -- "$@" "--ignore=tests/slurm/test_$name.py"
done
shift
exec "$venv/bin/pytest" --reruns 1 -rR -p no:cacheprovider "$@" tests/slurm
