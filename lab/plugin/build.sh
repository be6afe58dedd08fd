#!/bin/sh
# Builds the plugin for QEMU into the file named by the first argument.
#
# A nested cargo with a target directory of its own: the workspace builds static
# programs, and a plugin must be a dynamic library.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTPUT" >&2
    exit 2
fi
output=$1
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH= cd -- "$here/../.." && pwd)
target=${TRAPLINE_PLUGIN_TARGET:-$root/target/plugin}

unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_TARGET_DIR
export RUSTFLAGS="-C target-feature=-crt-static --remap-path-prefix=$root=."

cd "$root"
cargo rustc --quiet --package trapline-plugin --lib --crate-type cdylib --release \
    --target x86_64-unknown-linux-gnu --target-dir "$target"
cp "$target/x86_64-unknown-linux-gnu/release/libtrapline_plugin.so" "$output"
