#!/bin/sh
# Builds a program that runs without an operating system, the image or another, into a file.
#
# Cargo runs with a target directory of its own: in the workspace's build such a crate is
# a stub, and features of other crates must not reach it. The result contains no path of
# this machine: two builds give the same bytes.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 PACKAGE OUTPUT" >&2
    exit 2
fi
package=$1
output=$2
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
target=${TRAPLINE_IMAGE_TARGET:-$root/target/image}
# Nothing from an outer cargo.
unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_TARGET_DIR
cd "$root"

export RUSTFLAGS="--cfg trapline_image \
-C no-redzone=yes -C relocation-model=static -C force-unwind-tables=no \
-C strip=debuginfo --remap-path-prefix=$root=. \
--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"

cargo build --quiet --package "$package" --profile guest \
    --target x86_64-unknown-linux-gnu --target-dir "$target"
cp "$target/x86_64-unknown-linux-gnu/guest/$package" "$output"
