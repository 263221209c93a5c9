#!/bin/bash
# Runs the tests on a real cluster with several releases of Slurm: the one installed here, and those of newer Debian
# suites, each in a chroot that is made the first time and kept (SLURM_FT_CACHE, default /var/cache/slurm_ft). Prints one
# line per release, as each ends, and ends with 1 if a test of any failed. Needs root.
# Usage: tools/test_matrix.sh VENV [host|SUITE]…       default: host trixie sid
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
shift
[ $# -gt 0 ] || set -- host trixie sid
cache=${SLURM_FT_CACHE:-/var/cache/slurm_ft}
chroot_venv=/var/cache/slurm_ft/venv
unavailable=69 # of chroot.sh
failed=0

# Local directories and files that pip's configuration names here: what it finds here it shall find in a chroot. An index
# (`…/simple`) is nothing without the files beside it.
pip_places() {
    "$venv/bin/python" -m pip config list | grep -oE "/[^ '\",]+" | sed -E 's|^/+|/|; s|/simple/?$||' | while read -r path; do
        [ ! -e "$path" ] || echo "$path"
    done | sort -u
}

run_tests() {
    case $1 in
    host) "$venv/bin/pytest" --reruns 1 -rR tests/slurm ;;
    *) tools/chroot.sh "$1" "$cache/$1" /src/tools/test_in_chroot.sh "$chroot_venv" ;;
    esac
}

# What is left out; the demo needs PyTorch, which would take minutes and gigabytes for each release.
without() {
    [ "$1" = host ] || echo " (without the demo: no PyTorch there)"
}

# `Slurm 24.11.5 (trixie)`: pytest's header says it.
release() {
    local version
    version=$(sed -n 's/^slurm: //p' "$2" | head -n 1)
    echo "Slurm ${version:-?} ($1)"
}

# Why there is no chroot: what debootstrap and chroot.sh said last.
reason() {
    grep -E '^(E|W|chroot|unshare|mount): ' "$1" | tail -n 2 | paste -sd ' '
}

# pytest's last line without its frame and its time, or the last line of all.
summary() {
    local last
    last=$(sed -nE 's/^=+ (.*(passed|failed|error).*) in [0-9.]+s.*$/\1/p' "$1" | tail -n 1)
    echo "${last:-$(tail -n 1 "$1")}"
}

# One line, and 1 if a test failed.
test_suite() {
    local suite=$1 log=$cache/$1.log status=0
    run_tests "$suite" >"$log" 2>&1 || status=$?
    case $status in
    0) echo "$(release "$suite" "$log"): $(summary "$log")$(without "$suite")" ;;
    "$unavailable") echo "Slurm of $suite: not available: $(reason "$log")" ;;
    *)
        echo "$(release "$suite" "$log"): FAILED: $(summary "$log"): see $log"
        return 1
        ;;
    esac
}

FURTHER_BINDS=$(pip_places)
export FURTHER_BINDS
mkdir -p "$cache"
# All at once: most of a test's time is waiting. Whoever ends this script ends them, and each ends its chroot's processes.
running=()
trap 'kill "${running[@]}" 2>/dev/null || true' EXIT
for suite in "$@"; do
    test_suite "$suite" &
    running+=($!)
done
for one in "${running[@]}"; do
    wait "$one" || failed=1
done
exit "$failed"
