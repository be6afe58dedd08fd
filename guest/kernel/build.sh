#!/bin/sh
# Builds the image into the file named by the first argument.
#
# A nested cargo with a target directory of its own: in the workspace's build
# this crate is a stub, and another crate's features must not leak into it. No
# path of this machine may be in the result: two builds give the same bytes.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTPUT" >&2
    exit 2
fi
output=$1
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
target=${TRAPLINE_IMAGE_TARGET:-$root/target/image}

unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_TARGET_DIR
export RUSTFLAGS="--cfg trapline_image \
-C no-redzone=yes -C relocation-model=static -C force-unwind-tables=no \
-C strip=debuginfo --remap-path-prefix=$root=. \
--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"

cd "$root"
cargo build --quiet --package trapline-kernel --profile guest \
    --target x86_64-unknown-linux-gnu --target-dir "$target"
cp "$target/x86_64-unknown-linux-gnu/guest/trapline-kernel" "$output"
