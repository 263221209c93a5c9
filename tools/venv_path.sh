#!/bin/sh
# Prints where the virtual environment goes: `.venv` here, unless an ordinary user could not reach it (a checkout below
# /root, or in a private temporary directory), since the lab's jobs run as one and start this Python.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
directory=$root
while [ "$directory" != / ]; do
    case $(stat -c %A "$directory") in
    *[xt]) ;;
    *) echo "/var/tmp/slurm_ft-venv-$(id -u)-$(printf %s "$root" | cksum | cut -d' ' -f1)"; exit ;;
    esac
    directory=$(dirname "$directory")
done
echo "$root/.venv"
