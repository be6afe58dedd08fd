#!/bin/sh
# Builds the library that QEMU is started with into the file named by the first argument.
#
# A nested cargo with a target directory of its own: the workspace builds static
# programs, and this must be a dynamic library.
set -eu

. "$(dirname -- "$0")/../../scripts/nested.sh"
target=${TRAPLINE_STEADY_TARGET:-$root/target/steady}

export RUSTFLAGS="-C target-feature=-crt-static --remap-path-prefix=$root=."

cargo rustc --quiet --package trapline-steady --lib --crate-type cdylib --release \
    --target x86_64-unknown-linux-gnu --target-dir "$target"
cp "$target/x86_64-unknown-linux-gnu/release/libtrapline_steady.so" "$output"
