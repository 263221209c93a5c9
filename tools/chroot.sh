#!/bin/bash
# Runs a command, as root, in a Debian of another SUITE, which debootstrap makes in DIR the first time. The command finds
# this source tree read-only in /src, and the network, the pip configuration and the certificates of this machine.
# Usage: tools/chroot.sh SUITE DIR COMMAND [ARGUMENT…]
#
# Ends with 69 (EX_UNAVAILABLE) when the chroot cannot be made, otherwise with the command's exit code.
# FURTHER_BINDS may name more files and directories, one a line, that the command finds where they are here.
set -Eeuo pipefail # -E: traps hold in functions

unavailable() {
    echo "chroot: $*" >&2
    exit 69
}

# Everything runs in namespaces of its own: however this ends, `kill -9` included, the kernel ends the processes and
# takes the mounts away with them.
namespaces=(unshare --mount --propagation private --pid --fork --kill-child --mount-proc --)
if [ "${1:-}" != --inside ]; then
    "${namespaces[@]}" true || unavailable "no namespaces: this needs root, and a container needs --privileged"
    exec setpriv --pdeathsig KILL "${namespaces[@]}" "$0" --inside "$@"
fi
shift
suite=$1 directory=$2
shift 2
source=$(cd "$(dirname "$0")/.." && pwd)
packages=slurmctld,slurmd,slurm-client,munge,python3,python3-venv,gcc,libc6-dev # setup.sh adds what is missing
made=etc/slurm_ft-chroot # present in a chroot that was made to its end

# The mirror that apt uses here for Debian itself; none where apt has not seen a mirror of Debian (an Ubuntu).
mirror() {
    # shellcheck disable=SC2016 # apt replaces it
    apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1
}

# What apt was told here about reaching mirrors: proxies, certificates, patience.
apt_settings() {
    apt-config dump | grep -E '^Acquire::(http|https|Retries|Check-Date|Check-Valid-Until|Force)[: ]' || true
}

install_debootstrap() {
    exec 8>"$(dirname "$directory")/debootstrap.lock" # another suite's run may be at it
    flock 8
    command -v debootstrap >/dev/null && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap
}

# Beside its place first: a half-made one is never taken for a whole one, and nothing of anybody else's is removed.
make_chroot() {
    local new=$directory.new
    [ ! -e "$directory" ] || unavailable "$directory exists and is no chroot of ours"
    rm -rf --one-file-system "$new"
    mkdir -p "$new"
    install_debootstrap || unavailable "debootstrap cannot be installed"
    eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
    export http_proxy https_proxy
    # shellcheck disable=SC2046 # no word at all where there is no mirror
    debootstrap --variant=minbase --include="$packages" "$suite" "$new" $(mirror) ||
        unavailable "debootstrap $suite failed"
    apt_settings >"$new/etc/apt/apt.conf.d/99host"
    printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # packages start no service
    chmod 755 "$new/usr/sbin/policy-rc.d"
    touch "$new/$made"
    mv "$new" "$directory"
}

# Something of this machine, where it is here or at a given place, unless it is there already.
show() {
    local target=$directory${2:-$1}
    [ -e "$1" ] && ! [ "$1" -ef "$target" ] || return 0
    if [ -d "$1" ]; then
        mkdir -p "$target"
    else
        mkdir -p "$(dirname "$target")"
        rm -f "$target" # Debian's resolv.conf may be a link to nowhere
        touch "$target"
    fi
    mount --bind "$1" "$target"
    mount -o remount,bind,ro "$target"
}

mount_all() {
    mount -t proc proc "$directory/proc"
    mount --rbind /dev "$directory/dev" # /dev/kmsg is this machine's kernel log
    mount -t tmpfs -o mode=755 run "$directory/run"
    mount -t tmpfs -o mode=1777,dev tmp "$directory/dev/shm"
    show "$source" /src
    local path
    for path in /etc/resolv.conf /etc/hosts /etc/ssl/certs /usr/share/ca-certificates /usr/local/share/ca-certificates \
        /etc/pip.conf /etc/xdg/pip /root/.config/pip /root/.pip; do
        show "$path"
    done
    while read -r path; do
        [ -z "$path" ] || show "$path"
    done <<<"${FURTHER_BINDS:-}"
}

mkdir -p "$(dirname "$directory")"
exec 9>"$directory.lock"
flock --nonblock 9 || {
    echo "chroot: waiting for another run in $directory"
    flock 9
}
[ -e "$directory/$made" ] || make_chroot
trap 'unavailable "cannot mount what a chroot needs"' ERR
mount_all
trap - ERR
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME TMPDIR
# Not `exec`: the first process of the namespace has to look after the orphans that Slurm leaves.
status=0
chroot "$directory" /bin/sh -c 'cd /src && exec "$@"' sh "$@" 9>&- || status=$?
exit "$status"
