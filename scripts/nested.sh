# Sourced by scripts that build one crate in its own way, into the file named by
# their first argument: a nested cargo with nothing inherited from the one around
# it. Sets `output` and `root`, and goes to the root.

if [ $# -ne 1 ]; then
    echo "usage: $0 OUTPUT" >&2
    exit 2
fi
output=$1
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_TARGET_DIR
cd "$root"
