#!/usr/bin/env bash
# Builds a container image with Trapline and QEMU from the packages of Debian, as an OCI archive:
# `podman load` and `docker load` read it. Needs no container engine and no registry of images.
# usage: scripts/image.sh PACKAGES     PACKAGES: the output directory of scripts/dist.sh
set -eu

packages=$(cd "$1" && pwd)
for tool in mmdebstrap umoci; do
    if ! command -v "$tool" > /dev/null; then
        echo "image: $tool is not installed" >&2
        echo "help: sudo apt-get install mmdebstrap umoci" >&2
        exit 1
    fi
done
package=$(ls -t "$packages"/trapline_*_amd64.deb | head -n 1)
version=$(dpkg-deb -f "$package" Version)
output=$packages/trapline-$version.oci.tar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The package lists stay: Trapline fetches a kernel for its simulated machine.
mmdebstrap --quiet --variant=minbase --include=qemu-system-x86 \
    --skip=cleanup/apt/lists \
    --customize-hook="copy-in '$package' /tmp" \
    --customize-hook='chroot "$1" sh -c "dpkg -i /tmp/trapline_*.deb && rm /tmp/trapline_*.deb"' \
    bookworm "$work/root.tar"

umoci init --layout "$work/image"
umoci new --image "$work/image:trapline:$version"
umoci raw add-layer --image "$work/image:trapline:$version" "$work/root.tar"
umoci config --image "$work/image:trapline:$version" \
    --config.entrypoint /usr/bin/trapline --config.cmd run \
    --config.env XDG_DATA_HOME=/data --config.env XDG_CACHE_HOME=/data/cache \
    --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin --config.volume /data
tar -C "$work/image" -cf "$output" .
echo "image: $output"
