#!/usr/bin/env bash
# Installs missing packages of the distribution. Prints each command before it runs.
# If nothing is missing, it uses neither network nor disk.
# usage: scripts/setup.sh [tests]     tests: also the packages that only tests need
#
# Exit status: 0 if Trapline can be built (optional packages may be missing, and are
# then named), 1 if a required package is missing.
set -u

here=$(cd "$(dirname "$0")" && pwd)
for_tests=${1:-}

say() { printf 'setup: %s\n' "$*"; }

have() { command -v "$1" >/dev/null 2>&1; }

# The oldest Rust that builds Trapline.
oldest_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/../Cargo.toml"; }

# Whether a version of Rust builds Trapline.
is_new_enough() { printf '%s\n' "$(oldest_rust)" "$1" | sort --version-sort --check=quiet; }

# The version of the compiler in $PATH, if there is one with cargo.
compiler() { have cargo && rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p'; }

# The version of a package that would be installed.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]\+\).*/\1/p'; }

# The distribution's packages with a compiler that is new enough. For its browsers, Debian has a newer one.
compiler_packages() {
    local suffix version
    for suffix in "" -web; do
        version=$(candidate "rustc$suffix")
        if [ -n "$version" ] && is_new_enough "$version"; then
            echo "rustc$suffix cargo$suffix"
            return
        fi
    done
}

# Fails if there is no compiler that is new enough, and none can be installed beside those that are there.
check_compiler() {
    local version packages
    version=$(compiler)
    if [ -n "$version" ] && is_new_enough "$version"; then return; fi
    if ! have rustup && have apt-cache; then
        refresh_package_lists
        packages=$(compiler_packages)
        if [ -z "$version" ] && [ -n "$packages" ]; then return; fi
    fi
    if [ -n "$version" ]; then
        say "Rust $version is too old: $(oldest_rust) or later is needed"
    else
        say "Rust is missing: $(oldest_rust) or later is needed"
    fi
    if have rustup; then
        say "run: rustup update stable"
    elif [ -n "${packages:-}" ]; then
        say "run as root, which replaces $(command -v cargo):"
        say "    apt-get install --no-install-recommends $packages"
    else
        say "install it with rustup (rust-lang.org)"
    fi
    return 1
}

# All programs of Trapline are linked statically.
links_statically() {
    have cc && echo 'int main(void){return 0;}' |
        cc -x c -static -o /dev/null - 2>/dev/null
}

# Cargo downloads crates over TLS, and Debian's installs no certificates.
has_certificates() { ! have apt-get || [ -e "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" ]; }

# The kernel of the simulated machine is downloaded and unpacked, not installed.
has_package_lists() {
    have apt-cache && [ -n "$(apt-cache search --names-only '^linux-image-' 2>/dev/null | head -n 1)" ]
}

has_browser() {
    have chromium || have chromium-headless-shell || have google-chrome || have chromium-browser
}

needed=()    # packages without which nothing can be built
optional=()  # packages without which environments or tests are skipped
find_missing() {
    needed=()
    optional=()
    # shellcheck disable=SC2207
    if [ -z "$(compiler)" ]; then needed+=($(compiler_packages)); fi
    if ! has_certificates; then needed+=(ca-certificates); fi
    if ! links_statically; then needed+=(gcc libc6-dev); fi
    if ! have qemu-system-x86_64; then optional+=(qemu-system-x86); fi
    if [ "$for_tests" != tests ]; then return; fi
    if ! have bochs; then optional+=(bochs bochs-term); fi
    # Tests of the simulated machine of Arm.
    if ! have qemu-system-aarch64; then optional+=(qemu-system-arm); fi
    # Tests of the report's page.
    if ! has_browser; then optional+=(chromium); fi
    # Tests of the container image.
    if ! have mmdebstrap; then optional+=(mmdebstrap); fi
    if ! have umoci; then optional+=(umoci); fi
    # Tests of rates of packets, with a library of Debian 12.
    if [ ! -e /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk ] && [ -n "$(candidate librte-mempool-ring23)" ]; then
        optional+=(openvswitch-switch-dpdk librte-mempool-ring23)
    fi
    # Tests of fleets. Where systemd runs, the packages would start daemons.
    if ! PATH=$PATH:/usr/sbin have slurmctld && [ ! -d /run/systemd/system ]; then
        optional+=(slurmctld slurmd slurm-client munge)
    fi
    # Tests of source lines.
    if [ ! -d /usr/lib/debug/.build-id ]; then optional+=(libc6-dbg); fi
    # Tests of a disk whose machine is killed. Not in every user's $PATH.
    if ! PATH=$PATH:/usr/sbin:/sbin have mkfs.ext4; then optional+=(e2fsprogs); fi
}

# The command that makes a command run as root: none, sudo, or not available.
root=()
can_be_root() {
    if [ "$(id -u)" -eq 0 ]; then return 0; fi
    have sudo || return 1
    root=(sudo)
    # A password cannot be typed there.
    if [ -n "${CI:-}" ] || [ ! -t 0 ]; then root=(sudo -n); fi
}

as_root() {
    say "running: ${root[*]:+${root[*]} }$*"
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@"
}

install_missing() {
    local packages=("${needed[@]}" "${optional[@]}")
    if ! have apt-get; then
        say "no apt-get, so this is neither Debian nor Ubuntu: install the equivalents of"
        say "    ${packages[*]}"
        return
    fi
    say "missing: ${packages[*]}; installing from the distribution"
    if ! can_be_root || ! install_now "${packages[@]}"; then
        say "installation failed; run as root:"
        say "    apt-get install --no-install-recommends ${packages[*]}"
    fi
}

install_now() {
    as_root apt-get update -q || say "package lists could not be refreshed; using those present"
    as_root apt-get install -q -y --no-install-recommends "$@"
}

refresh_package_lists() {
    if ! have apt-get || has_package_lists; then return; fi
    if ! can_be_root; then
        say "no package lists: run 'apt-get update' so that Trapline can fetch a kernel for its simulated machine"
        return
    fi
    say "no package lists: they name compilers and the kernel of the simulated machine"
    as_root apt-get update -q || say "package lists could not be fetched; sim/linux, sim/kvm and sim/qemu-kvm need --kernel FILE"
}

main() {
    check_compiler || return
    refresh_package_lists
    find_missing
    if [ $((${#needed[@]} + ${#optional[@]})) -gt 0 ]; then
        install_missing
        find_missing
    fi
    if ! have qemu-system-x86_64; then
        say "without QEMU (package qemu-system-x86) only host and kvm can be measured"
    fi
    if [ "$for_tests" = tests ] && ! have bochs; then
        say "without Bochs (packages bochs and bochs-term) tests of sim-vmx are skipped"
    fi
    if [ ${#needed[@]} -gt 0 ]; then
        say "cannot build without: ${needed[*]}"
        return 1
    fi
}

main
