#!/bin/sh
# The part of tools/test_matrix.sh that runs inside of a chroot: sets up Slurm and Python, then tests.
# Usage: tools/test_in_chroot.sh VENV
set -eu
venv=$1
cd "$(dirname "$0")/.."
tools/setup.sh "$venv" test || { echo "Slurm or a Python package could not be installed"; exit 69; }
# The source tree is read-only here. PyTorch, which the demo needs, would take minutes for each release.
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/pytest" -p no:cacheprovider --ignore=tests/slurm/test_demo.py tests/slurm
