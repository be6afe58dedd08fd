#!/bin/sh
# Prints the directory of the exact figures of this host's release, relative to the repository: distributions have
# different versions of QEMU and of the simulated machine's kernel.
# usage: scripts/baselines.sh [OS_RELEASE]
set -eu

# shellcheck source=/dev/null
. "${1:-/etc/os-release}"
echo "baselines/$ID${VERSION_ID:+-$VERSION_ID}"
