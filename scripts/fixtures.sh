#!/usr/bin/env bash
# Records the guests that tests replay, see tests/recordings/README.md.
# usage: scripts/fixtures.sh DIST SLOW_IMAGE
set -eu

dist=$(realpath "$1")
slow_image=$2
recordings=tests/recordings
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -a "$dist" "$work/slow"
cp "$slow_image" "$work/slow/trapline-image"

record() {
    rm -rf "$recordings/$2"
    TRAPLINE_PARTS=$1 TRAPLINE_RECORD=$recordings/$2 \
        "$dist/trapline" run --env sim --workload basic --store "$work/samples.db" --quiet
}

record "$dist" sim
record "$work/slow" slow/sim
