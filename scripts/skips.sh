#!/usr/bin/env bash
# Prints the tests that were skipped, with reasons.
# usage: scripts/skips.sh FILE
set -eu

if [ -s "$1" ]; then
    echo
    echo "Skipped here:"
    sort -u "$1" | sed 's/^/  /'
else
    echo
    echo "Nothing was skipped."
fi
