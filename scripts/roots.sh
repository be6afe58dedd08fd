#!/usr/bin/env bash
# Checks a release on clean systems: for each release of Debian it makes a root directory, follows the installation of
# README.md in a clone of the last commit, packs that, runs the tests, and boots each environment that is ready once. The
# archive, the package and the container image then measure in roots of their own, which have no compiler.
# usage: scripts/roots.sh [RELEASE...]     names of Debian's releases [default: bookworm trixie]
#
# Needs root, mmdebstrap, git, 15 GB in TMPDIR, and hours. $TRAPLINE_ROOT_FILES names a directory that is copied into
# each root first, such as one with certificates, settings of apt and cargo, or a NOVA (root/.cache/trapline/nova/hypervisor).
# Prints seconds, longest silence and result of each step, and the size of each root; the output of steps, with the seconds
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
    log=$logs/$release-${name//[^[:alnum:].-]/-}.log
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

new_root() {
    root=$(mktemp -d --tmpdir "trapline-$release.XXXXXX")
    chmod 755 "$root"
    step "clean root$1" make_root
}

# Copies the user's files into a root.
add_files() {
    cp -L /etc/resolv.conf "$1/etc/resolv.conf" || return
    if [ -n "${TRAPLINE_ROOT_FILES:-}" ]; then cp -r "$TRAPLINE_ROOT_FILES/." "$1"; fi
}

make_root() {
    mmdebstrap --variant=important "$release" "$root" || return
    add_files "$root" || return
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

install_packages() {
    step "apt-get install $1" inside "apt-get update -q && apt-get install -q -y --no-install-recommends $1"
}

size() {
    printf '%-9s %-40s %6d MB, %d packages\n' "$release" "size of the root$1" \
        "$(du -sxm "$root" | cut -f1)" "$(inside 'dpkg-query --show' | wc -l)"
}

# Follows README, and leaves archive, package and image in $packages.
check_source() {
    new_root '' || return
    install_packages 'git make' || return
    step 'git clone' git clone --quiet --no-hardlinks "$here" "$root/root/trapline" || return
    local command environment
    while read -r command; do
        step "$command" inside "$command" || return
    done < <(readme_commands)
    size ' that builds'
    step 'make dist' inside 'make dist'
    install_packages 'mmdebstrap umoci' && step 'make image' inside 'make image'
    cp "$root"/root/trapline/target/packages/* "$packages"
    step 'make test' inside 'make test'
    size ' that tests'
    for environment in $(ready_environments); do
        step "$environment" \
            inside "target/dist/trapline run --exact-boots 1 --boots 1 --env $environment --workload basic/getpid,exits/cpuid"
    done
}

check_archive() {
    new_root ' of the archive' || return
    cp "$packages"/trapline-*.tar.gz "$root/root"
    install_packages qemu-system-x86 &&
        step 'archive' inside 'tar -C /opt -xf /root/trapline-*.tar.gz' &&
        step 'archive: trapline run' inside '/opt/trapline-*/bin/trapline run'
    size ' of the archive'
}

check_package() {
    new_root ' of the package' || return
    cp "$packages"/trapline_*.deb "$root/root"
    install_packages './root/trapline_*.deb qemu-system-x86' && step 'package: trapline run' inside 'trapline run'
    size ' of the package'
}

check_image() {
    new_root ' of the image' || return
    cp "$packages"/trapline-*.oci.tar "$root/root"
    install_packages umoci && step 'unpack the image' inside "mkdir /root/layout && tar -C /root/layout -xf /root/trapline-*.oci.tar &&
        umoci unpack --image \"/root/layout:\$(umoci list --layout /root/layout)\" /root/bundle" &&
        add_files "$root/root/bundle/rootfs" &&
        step 'image: trapline run' inside "unshare --mount --pid --fork --mount-proc=/root/bundle/rootfs/proc \
            chroot /root/bundle/rootfs env -i PATH=/usr/bin:/bin XDG_DATA_HOME=/data XDG_CACHE_HOME=/data/cache trapline run"
    size ' of the image'
}

mkdir -p "$logs"
if [ $# -eq 0 ]; then set -- bookworm trixie; fi
printf '%-9s %-40s %8s %8s\n' release step time silence
for release in "$@"; do
    packages=$logs/packages-$release
    rm -rf "$packages"
    mkdir -p "$packages"
    for kind in source archive package image; do
        check_$kind
        remove_root
    done
done
exit $failed
