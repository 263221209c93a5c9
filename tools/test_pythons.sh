#!/bin/bash
# Installs the wheel into a virtual environment of each Python and runs the unit tests there, against what was installed.
# Usage: tools/test_pythons.sh DIR [PYTHON…]     (default: python3.10 to python3.13, as far as they are in PATH)
# A test starts the Python as another user, which fails for one below /root.
#
# Ends with 1 if any of them fails, with 69 (EX_UNAVAILABLE) if none is here. The summary names each, also the missing.
set -euo pipefail
directory=$1
shift
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- python3.10 python3.11 python3.12 python3.13
summary=() failed=0 ran=0

# What the tests need beside the package. Not PyTorch, which is large: the tests that import it are left out here.
needs=(pytest pytest-timeout pytest-rerunfailures hypothesis aiosmtpd apprise prometheus-client nvidia-ml-py hatchling)

mapfile -t torch < <(grep -lE '^(import|from) (torch|numpy|safetensors|checkpoint_trees)\b' tests/unit/test_*.py)

for python in "$@"; do
    program=$(command -v "$python") || { summary+=("$python: not on this machine") && continue; }
    version=$("$program" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
    venv=$directory/$version
    echo "== Python $version in $venv"
    rm -rf "$venv"
    "$program" -m venv "$venv"
    "$venv/bin/pip" install --quiet "${needs[@]}"
    "$venv/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$venv/dist" .
    "$venv/bin/pip" install --quiet "$venv"/dist/slurm_ft-*.whl
    ran=1
    if "$venv/bin/pytest" -q -p no:cacheprovider "${torch[@]/#/--ignore=}" tests/unit >"$venv/log" 2>&1; then
        summary+=("Python $version: $(tail -n 1 "$venv/log")")
    else
        failed=1
        grep -E '^(FAILED|ERROR)' "$venv/log" || tail -n 20 "$venv/log"
        summary+=("Python $version FAILED: $(tail -n 1 "$venv/log"); see $venv/log")
    fi
done
printf '%s\n' "${summary[@]}"
[ "$ran" = 1 ] || exit 69
exit "$failed"
