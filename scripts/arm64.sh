#!/usr/bin/env bash
# Builds the programs of the simulated machine of Arm into a directory.
# usage: scripts/arm64.sh DIST
#
# The linker is the distribution's, and so are a compiler and its standard library unless rustup has the target. What is not
# installed is unpacked into the cache.
set -eu

dist=$1
target=aarch64-unknown-linux-gnu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/trapline/toolchain-arm64
umask 077

say() { printf 'arm64: %s\n' "$*"; }

# Downloads packages, with apt's options if there are any, and unpacks them into a directory.
# usage: unpack DIRECTORY [-o OPTION]... -- PACKAGE...
unpack() {
    local directory=$1 options=() file
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    mkdir -p "$directory/packages"
    (cd "$directory/packages" && apt-get -qq -o APT::Sandbox::User=root "${options[@]}" download "$@")
    for file in "$directory"/packages/*.deb; do dpkg-deb --extract "$file" "$directory"; done
    rm -r "$directory/packages"
}

# Without packages of a distribution, what is missing has to be installed by hand.
# usage: require COMMAND
require() {
    if command -v apt-get > /dev/null; then return; fi
    say "not built, and sim-arm64 is not available: no apt-get, so this is neither Debian nor Ubuntu"
    say "run: $1"
    exit 0
}

has_std() { [ -n "$(ls "$("$1" --print sysroot)/lib/rustlib/$target/lib"/libcore-*.rlib 2>/dev/null)" ]; }

# Sets the linker.
find_linker() {
    linker=$(command -v aarch64-linux-gnu-gcc || true)
    if [ -n "$linker" ]; then return; fi
    require "install aarch64-linux-gnu-gcc"
    local place=$cache/linker packages
    if [ ! -e "$place/complete" ]; then
        say "downloading gcc-aarch64-linux-gnu, which is not installed (44 MB)"
        rm -rf "$place"
        packages=$(apt-get install --simulate --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross |
            sed -n 's/^Inst \([^ ]*\).*/\1/p')
        # shellcheck disable=SC2086
        unpack "$place" -- $packages
        touch "$place/complete"
    fi
    linker=$place/usr/bin/aarch64-linux-gnu-gcc
    export LD_LIBRARY_PATH=$place/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# Sets $RUSTC to a compiler with the standard library of the target, unless the usual one has it.
find_compiler() {
    if has_std rustc; then return; fi
    require "rustup target add $target"
    local place=$cache/compiler
    if [ ! -e "$place/complete" ]; then
        say "downloading a compiler with the standard library of $target (145 MB), since this one has none"
        say "(or: rustup target add $target)"
        rm -rf "$place"
        download_compiler "$place"
        touch "$place/complete"
    fi
    export RUSTC=$place/rustc
    has_std "$RUSTC" || { say "$RUSTC has no standard library of $target; remove $place"; exit 1; }
}

download_compiler() {
    local place=$1 library llvm apt
    library=$(apt-cache depends libstd-rust-web-dev | sed -n 's/.*Depends: \(libstd-rust-web-[0-9.]*\)$/\1/p' | head -n 1)
    llvm=$(apt-cache depends "$library" | sed -n 's/.*Depends: \(libllvm[0-9]*\)$/\1/p' | head -n 1)
    if [ -z "$library" ] || [ -z "$llvm" ]; then
        say "the distribution has no compiler for it; run: rustup target add $target"
        exit 1
    fi
    unpack "$place/host" -- rustc-web "$library" libstd-rust-web-dev "$llvm"
    # Package lists of the other architecture, apart from those of this host.
    apt=$place/apt
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : > "$apt/status"
    local options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$apt"
        -o "Dir::State::Lists=$apt/lists" -o "Dir::State::Status=$apt/status" -o "Dir::Cache=$apt")
    apt-get -qq -o APT::Sandbox::User=root "${options[@]}" update
    unpack "$place/arm64" "${options[@]}" -- "$library" libstd-rust-web-dev
    rm -r "$apt"
    mkdir -p "$place/sysroot/lib/rustlib"
    mv "$place/host/usr/lib/rustlib/x86_64-unknown-linux-gnu" "$place/arm64/usr/lib/rustlib/$target" \
        "$place/sysroot/lib/rustlib/"
    local libraries=$place/host/usr/lib/x86_64-linux-gnu directory
    while read -r directory; do libraries+=:$directory; done < <(
        find "$place/host" -name 'libLLVM*.so*' -exec dirname {} \; | sort -u)
    cat > "$place/rustc" <<END
#!/bin/sh
export LD_LIBRARY_PATH="$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
exec "$place/host/usr/bin/rustc" --sysroot "$place/sysroot" "\$@"
END
    chmod +x "$place/rustc"
}

find_linker
find_compiler
# Nothing from an outer cargo, and no path of this machine in the measured programs.
unset CARGO_ENCODED_RUSTFLAGS RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_TARGET_DIR
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
remapped="'--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo', '--remap-path-prefix=$root=.'"
# Two compilers do not share a directory.
cargo build --quiet --profile guest --package trapline-agent --bins --target "$target" --target-dir target/arm64 \
    --config "target.$target.linker='$linker'" \
    --config "target.$target.rustflags=['-C', 'target-feature=+crt-static', $remapped]"
mkdir -p "$dist"
for program in trapline-agent trapline-symbols; do
    if ! cmp -s "target/arm64/$target/guest/$program" "$dist/$program-arm64"; then
        install -m 755 "target/arm64/$target/guest/$program" "$dist/.$program-arm64.new"
        mv "$dist/.$program-arm64.new" "$dist/$program-arm64"
        echo "build: $dist/$program-arm64"
    fi
done
