#!/usr/bin/env bash
# Installs from the distribution what is missing to build and run Trapline, and
# nothing else. Says what it is about to do before it does it. Where all is
# there it touches neither network nor disk.
#
# Exit status: 0 if Trapline can be built (what is optional may be missing, and
# is then named), 1 if something needed is missing.
set -u

here=$(cd "$(dirname "$0")" && pwd)

say() { printf 'setup: %s\n' "$*"; }

have() { command -v "$1" >/dev/null 2>&1; }

# The oldest Rust that this can be built with.
oldest_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/../Cargo.toml"; }

# A static program can be linked: this is what all of ours are.
links_statically() {
    have cc && echo 'int main(void){return 0;}' |
        cc -x c -static -o /dev/null - 2>/dev/null
}

# Lists of packages are there, so that the kernel of the simulated machine can be
# fetched (downloaded and unpacked, not installed).
has_package_lists() {
    have apt-cache && [ -n "$(apt-cache search --names-only '^linux-image-' 2>/dev/null | head -n 1)" ]
}

needed=()    # packages without which nothing can be built
optional=()  # packages without which environments are skipped
find_missing() {
    needed=()
    optional=()
    if ! links_statically; then needed+=(gcc libc6-dev); fi
    if ! have qemu-system-x86_64; then optional+=(qemu-system-x86); fi
    if ! have bochs; then optional+=(bochs bochs-term); fi
    # Looks at the page of trapline report in the tests.
    if ! have chromium && ! have chromium-headless-shell && ! have google-chrome && ! have chromium-browser; then
        optional+=(chromium)
    fi
    # For a disk that is written while its machine is killed; not in everybody's $PATH.
    if ! PATH=$PATH:/usr/sbin:/sbin have mkfs.ext4; then optional+=(e2fsprogs); fi
}

# How to become root here: nothing, sudo, or not at all.
root=()
can_be_root() {
    if [ "$(id -u)" -eq 0 ]; then return 0; fi
    have sudo || return 1
    root=(sudo)
    # Nobody is there to type a password.
    if [ -n "${CI:-}" ] || [ ! -t 0 ]; then root=(sudo -n); fi
}

as_root() {
    say "running: ${root[*]:+${root[*]} }$*"
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@"
}

install_missing() {
    local packages=("${needed[@]}" "${optional[@]}")
    if ! have apt-get; then
        say "this is no Debian or Ubuntu (no apt-get): please install by hand what corresponds to"
        say "    ${packages[*]}"
        return
    fi
    say "missing here: ${packages[*]}; installing from the distribution"
    if ! can_be_root || ! install_now "${packages[@]}"; then
        say "that did not work; please have this run by somebody who may:"
        say "    apt-get install --no-install-recommends ${packages[*]}"
    fi
}

install_now() {
    as_root apt-get update -q || say "the lists of packages could not be refreshed; trying with those that are there"
    as_root apt-get install -q -y --no-install-recommends "$@"
}

refresh_package_lists() {
    if ! have apt-get || has_package_lists; then return; fi
    if ! can_be_root; then
        say "no lists of packages here; 'apt-get update' would let Trapline fetch a kernel for its simulated machine"
        return
    fi
    say "no lists of packages here; they are needed to fetch a kernel for the simulated machine"
    as_root apt-get update -q || say "could not be fetched; sim/linux, sim/kvm and sim/qemu-kvm need --kernel FILE"
}

main() {
    if ! have cargo; then
        say "Rust is missing: install it with rustup (rust-lang.org), or cargo and rustc $(oldest_rust) or later from your distribution"
        return 1
    fi
    find_missing
    if [ $((${#needed[@]} + ${#optional[@]})) -gt 0 ]; then
        install_missing
        find_missing
    fi
    if have qemu-system-x86_64; then
        refresh_package_lists
    else
        say "without QEMU (package qemu-system-x86) only host and kvm can be measured; the rest still works"
    fi
    if ! have bochs; then
        say "without Bochs (packages bochs and bochs-term) sim-vmx and what is on it cannot be measured; the rest still works"
    fi
    if [ ${#needed[@]} -gt 0 ]; then
        say "cannot build without: ${needed[*]}"
        return 1
    fi
}

main
