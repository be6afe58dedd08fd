#!/usr/bin/env bash
# Builds every part and puts it into one directory.
# usage: scripts/build.sh BUILT DIST GUEST_PROGRAM...
set -eu

built=$1
dist=$2
shift 2
guest_programs=("$@")

# Copies a file only when it changed, so that its time says when it did.
place() {
    if ! cmp -s "$1" "$dist/$2"; then
        # Into place by a rename: a program that runs keeps its old file.
        cp "$1" "$dist/.$2.new"
        mv "$dist/.$2.new" "$dist/$2"
        echo "build: $dist/$2"
    fi
}

mkdir -p "$dist"
selected=()
for program in "${guest_programs[@]}"; do selected+=(--bin "$program"); done

cargo build --release --bin trapline
# No path of this machine in what is measured: exact figures move with every byte.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
remapped="'--remap-path-prefix=$cargo_home=cargo', '--remap-path-prefix=$PWD=.'"
cargo build --profile guest "${selected[@]}" \
    --config "target.x86_64-unknown-linux-gnu.rustflags=[$remapped]"
guest/kernel/build.sh "$dist/.trapline-image.built"
lab/plugin/build.sh "$dist/.libtrapline_ledger.so.built"
lab/steady/build.sh "$dist/.libtrapline_steady.so.built"

place "$built/release/trapline" trapline
for program in "${guest_programs[@]}"; do place "$built/guest/$program" "$program"; done
place "$dist/.trapline-image.built" trapline-image
place "$dist/.libtrapline_ledger.so.built" libtrapline_ledger.so
place "$dist/.libtrapline_steady.so.built" libtrapline_steady.so
