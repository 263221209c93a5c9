#!/bin/sh
# The part of tools/test_matrix.sh that runs inside of a chroot: sets up Python, then tests.
# Usage: tools/test_in_chroot.sh VENV
set -eu
venv=$1
cd "$(dirname "$0")/.."
tools/setup.sh "$venv" test
# The source tree is read-only here, and there is no PyTorch for the demo and for the templates' trainings.
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/pytest" --reruns 1 -rR -p no:cacheprovider --ignore=tests/slurm/test_demo.py \
    --ignore=tests/slurm/test_templates.py tests/slurm
