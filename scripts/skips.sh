#!/usr/bin/env bash
# Tells what tests did not run here, and why.
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
