#!/bin/sh
# Builds the image into the file named by the first argument.
#
# Cargo runs with a target directory of its own: in the workspace's build this crate is
# a stub, and features of other crates must not reach it. The result contains no path of
# this machine: two builds give the same bytes.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTPUT" >&2
    exit 2
fi
output=$1
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
target=${TRAPLINE_IMAGE_TARGET:-$root/target/image}
# Nothing from an outer cargo.
unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_TARGET_DIR
cd "$root"

export RUSTFLAGS="--cfg trapline_image \
-C no-redzone=yes -C relocation-model=static -C force-unwind-tables=no \
-C strip=debuginfo --remap-path-prefix=$root=. \
--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"

cargo build --quiet --package trapline-kernel --profile guest \
    --target x86_64-unknown-linux-gnu --target-dir "$target"
cp "$target/x86_64-unknown-linux-gnu/guest/trapline-kernel" "$output"
