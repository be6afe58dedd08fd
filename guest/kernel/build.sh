#!/bin/sh
# Builds the image into the file named by the first argument.
#
# A nested cargo with a target directory of its own: in the workspace's build
# this crate is a stub, and another crate's features must not leak into it. No
# path of this machine may be in the result: two builds give the same bytes.
set -eu

. "$(dirname -- "$0")/../../scripts/nested.sh"
target=${TRAPLINE_IMAGE_TARGET:-$root/target/image}

export RUSTFLAGS="--cfg trapline_image \
-C no-redzone=yes -C relocation-model=static -C force-unwind-tables=no \
-C strip=debuginfo --remap-path-prefix=$root=. \
--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"

cargo build --quiet --package trapline-kernel --profile guest \
    --target x86_64-unknown-linux-gnu --target-dir "$target"
cp "$target/x86_64-unknown-linux-gnu/guest/trapline-kernel" "$output"
