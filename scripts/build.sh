#!/usr/bin/env bash
# Builds every part into one directory.
# usage: scripts/build.sh BUILT DIST GUEST_PROGRAM...
#
# All steps use one target directory, so that build scripts, procedural macros and
# libraries are compiled once a profile.
set -eu

built=$1
dist=$2
shift 2
guest_programs=("$@")

# Copies a file only if it changed, so that its time is that of the last change.
place() {
    if ! cmp -s "$1" "$dist/$2"; then
        # Renamed into place: a running program keeps its old file.
        cp "$1" "$dist/.$2.new"
        mv "$dist/.$2.new" "$dist/$2"
        echo "build: $dist/$2"
    fi
}

# Builds a library that QEMU loads: dynamic, in contrast to our programs.
build_library() {
    RUSTFLAGS="-C target-feature=-crt-static --remap-path-prefix=$PWD=." \
        cargo rustc --release --package "trapline-$1" --lib --crate-type cdylib
}

mkdir -p "$dist"
selected=()
for program in "${guest_programs[@]}"; do selected+=(--bin "$program"); done

cargo build --release --bin trapline --bin trapline-traffic
build_library plugin
build_library steady
# No path of this machine in the measured programs: exact figures depend on every byte.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
remapped="'--remap-path-prefix=$cargo_home=cargo', '--remap-path-prefix=$PWD=.'"
cargo build --profile guest "${selected[@]}" \
    --config "target.x86_64-unknown-linux-gnu.rustflags=[$remapped]"
scripts/freestanding.sh trapline-kernel "$dist/.trapline-image.built"
scripts/freestanding.sh trapline-nova "$dist/.trapline-nova.built"

for program in trapline trapline-traffic; do place "$built/release/$program" "$program"; done
for program in "${guest_programs[@]}"; do place "$built/guest/$program" "$program"; done
place "$dist/.trapline-image.built" trapline-image
place "$dist/.trapline-nova.built" trapline-nova
place "$built/release/libtrapline_plugin.so" libtrapline_profile.so
place "$built/release/libtrapline_steady.so" libtrapline_steady.so
