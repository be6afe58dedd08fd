#!/usr/bin/env bash
# Checks a release on clean systems: for each release of Debian it makes a root directory, follows the installation of
# README.md in a clone of the last commit, runs the tests, and boots each environment that is ready once.
# usage: scripts/roots.sh [RELEASE...]     names of Debian's releases [default: bookworm trixie]
#
# Needs root, mmdebstrap, git, 15 GB in TMPDIR, and hours. $TRAPLINE_ROOT_FILES names a directory that is copied into
# each root first, such as one with certificates, settings of apt and cargo, or a NOVA (root/.cache/trapline/nova/hypervisor).
# Prints seconds, longest silence and result of each step, and the size of the root; the output of steps, with the seconds
# of each line, is in target/roots. Exit status: 0 if all steps succeeded.
# Functions are called by their names.
# shellcheck disable=SC2317
set -u

here=$(cd "$(dirname "$0")/.." && pwd)
# Mounts end with the namespace, also if this script is killed.
if [ -z "${TRAPLINE_ROOTS_UNSHARED:-}" ]; then
    TRAPLINE_ROOTS_UNSHARED=1 exec unshare --mount --propagation private "$0" "$@"
fi

logs=$here/target/roots
root=
failed=0

remove_root() {
    if [ -z "$root" ]; then return; fi
    umount --recursive --lazy "$root" 2> /dev/null
    rm -rf --one-file-system "$root"
    root=
}
trap remove_root EXIT
trap 'exit 130' INT TERM

# Writes its input to standard output, each line after the seconds since the start, and the most seconds without a line to a file.
longest_silence() {
    local line start=$SECONDS last=$SECONDS longest=0
    while IFS= read -r line || [ -n "$line" ]; do
        if ((SECONDS - last > longest)); then longest=$((SECONDS - last)); fi
        last=$SECONDS
        printf '%5d %s\n' $((last - start)) "$line"
    done
    if ((SECONDS - last > longest)); then longest=$((SECONDS - last)); fi
    echo "$longest" > "$1"
}

# Runs a command as a step of a name, and prints how it went.
step() {
    local name=$1 start=$SECONDS log status result=ok
    shift
    log=$logs/$release-${name//[ \/]/-}.log
    { "$@" 2>&1 < /dev/null; echo $? > "$logs/status"; } | longest_silence "$logs/silence" > "$log"
    status=$(cat "$logs/status")
    if [ "$status" != 0 ]; then
        result="failed, status $status: $log"
        failed=1
    fi
    printf '%-9s %-40s %6d s %6d s  %s\n' "$release" "$name" $((SECONDS - start)) "$(cat "$logs/silence")" "$result"
    return "$status"
}

# Runs a shell command in the clone, with nothing of this system's environment.
inside() {
    chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        bash -c "cd /root/trapline 2> /dev/null; $1"
}

make_root() {
    mmdebstrap --variant=important "$release" "$root" || return
    cp -L /etc/resolv.conf "$root/etc/resolv.conf" || return
    if [ -n "${TRAPLINE_ROOT_FILES:-}" ]; then cp -r "$TRAPLINE_ROOT_FILES/." "$root" || return; fi
    # A root directory is a mount point, as tests of file systems expect.
    mount --bind "$root" "$root" || return
    local directory
    for directory in proc sys dev; do
        mount --rbind "/$directory" "$root/$directory" || return
    done
}

# The commands of README's installation, without its remarks.
readme_commands() {
    sed -n '/^## Installation/,/^## Commands/s/^    \([^#]*[^# ]\).*/\1/p' "$here/README.md"
}

ready_environments() {
    inside 'target/dist/trapline list --format json' |
        awk -F'"' '/^ *"name":/ { name = $4 } /^ *"ready": true/ { print name }'
}

check_release() {
    release=$1
    root=$(mktemp -d --tmpdir "trapline-$release.XXXXXX")
    chmod 755 "$root"
    step 'clean root' make_root || return
    step 'apt-get install git make' inside 'apt-get update -q && apt-get install -q -y --no-install-recommends git make' || return
    step 'git clone' git clone --quiet --no-hardlinks "$here" "$root/root/trapline" || return
    local command environment
    while read -r command; do
        step "$command" inside "$command" || return
    done < <(readme_commands)
    step 'make test' inside 'make test'
    for environment in $(ready_environments); do
        step "$environment" \
            inside "target/dist/trapline run --exact-boots 1 --boots 1 --env $environment --workload basic/getpid,exits/cpuid"
    done
}

mkdir -p "$logs"
if [ $# -eq 0 ]; then set -- bookworm trixie; fi
printf '%-9s %-40s %8s %8s\n' release step time silence
for release in "$@"; do
    check_release "$release"
    printf '%-9s %-40s %6d MB\n' "$release" 'size of the root' "$(du -sxm "$root" | cut -f1)"
    remove_root
done
exit $failed
