#!/usr/bin/env bash
# Packs built parts into a tar archive and a Debian package, for users without a compiler.
# Both hold the same tree; all programs are static, and the libraries are loaded by QEMU.
# usage: scripts/dist.sh PARTS OUTPUT
set -eu

parts=$1
mkdir -p "$2"
output=$(cd "$2" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
name=trapline-$version-x86_64-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name

install -d "$tree/bin"
for part in "$parts"/trapline "$parts"/trapline-* "$parts"/libtrapline_*.so; do
    install -D "$part" "$tree/lib/trapline/$(basename "$part")"
done
# Trapline finds its parts beside the program that the link names.
ln -s ../lib/trapline/trapline "$tree/bin/trapline"

# Writes what a command of Trapline prints to a file of the tree.
generate() {
    install -d "$(dirname "$tree/$1")"
    "$tree/bin/trapline" "${@:2}" > "$tree/$1"
}
generate share/man/man1/trapline.1 man
for command in $("$tree/bin/trapline" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\)  .*/\1/p'); do
    [ "$command" = help ] || generate "share/man/man1/trapline-$command.1" man "$command"
done
gzip -9n "$tree"/share/man/man1/*.1
generate share/bash-completion/completions/trapline completions bash
generate share/zsh/vendor-completions/_trapline completions zsh
generate share/fish/vendor_completions.d/trapline.fish completions fish

doc=$tree/share/doc/trapline
install -d "$doc"
cp -r "$root"/README.md "$root"/CHANGELOG.md "$root"/LICENSE-* "$root/SECURITY.md" "$root/docs" "$root/plans" "$root/vmms" "$root/baselines" "$doc"
"$root/scripts/sbom.sh" "$version" > "$doc/sbom.cdx.json"
chmod -R u=rwX,go=rX "$tree"

# The same bytes from the same commit.
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH=$epoch
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" \
    -C "$work" -cf - "$name" | gzip -n > "$output/$name.tar.gz"
echo "dist: $output/$name.tar.gz"

if ! command -v dpkg-deb > /dev/null; then
    echo "dist: no Debian package: dpkg-deb is not installed"
    exit 0
fi
package=$work/package
install -d "$package/DEBIAN"
mv "$tree" "$package/usr"
cat > "$package/DEBIAN/control" <<CONTROL
Package: trapline
Version: $version
Architecture: amd64
Maintainer: Trapline maintainers <trapline@localhost>
Section: utils
Priority: optional
Installed-Size: $(du -sk "$package/usr" | cut -f1)
Suggests: qemu-system-x86, bochs, bochs-term
Description: measures what virtualization costs
 Runs the same code natively and under several hypervisors, and reports the cost of
 each operation in nanoseconds or in instructions.
CONTROL
dpkg-deb --root-owner-group -Zgzip -z6 --build "$package" "$output/trapline_${version}_amd64.deb" > /dev/null
echo "dist: $output/trapline_${version}_amd64.deb"
