#!/bin/sh
# Builds the plugin for QEMU into the file named by the first argument.
#
# A nested cargo with a target directory of its own: the workspace builds static
# programs, and a plugin must be a dynamic library.
set -eu

. "$(dirname -- "$0")/../../scripts/nested.sh"
target=${TRAPLINE_PLUGIN_TARGET:-$root/target/plugin}

export RUSTFLAGS="-C target-feature=-crt-static --remap-path-prefix=$root=."

cargo rustc --quiet --package trapline-plugin --lib --crate-type cdylib --release \
    --target x86_64-unknown-linux-gnu --target-dir "$target"
cp "$target/x86_64-unknown-linux-gnu/release/libtrapline_plugin.so" "$output"
