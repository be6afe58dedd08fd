#!/usr/bin/env bash
# Prints the crates of other authors in the built parts, with licences and checksums, as CycloneDX 1.5 (JSON).
# usage: scripts/sbom.sh VERSION
set -eu -o pipefail

cd "$(dirname "$0")/.."
cargo tree --quiet --locked --workspace --exclude trapline-tests --edges normal --target x86_64-unknown-linux-gnu \
    --prefix none --no-dedupe --format '{p}|{l}' | LC_ALL=C sort -u | awk -F'|' -v trapline="$1" '
    FNR == NR {
        if (split($0, word, "\"") == 3) lock[word[1]] = word[2]
        if ($0 ~ /^checksum/) checksum[lock["name = "] " v" lock["version = "]] = lock["checksum = "]
        next
    }
    BEGIN {
        printf "{\"bomFormat\": \"CycloneDX\", \"specVersion\": \"1.5\", \"version\": 1,\n"
        printf "\"metadata\": {\"component\": {\"type\": \"application\", \"name\": \"trapline\", \"version\": \"%s\"}},\n", trapline
        printf "\"components\": ["
    }
    { sub(/ \(proc-macro\)$/, "", $1) }
    $1 in checksum {
        split($1, package, " v")
        gsub(/\//, " OR ", $2)
        printf "%s\n{\"type\": \"library\", \"name\": \"%s\", \"version\": \"%s\", ", separator, package[1], package[2]
        printf "\"purl\": \"pkg:cargo/%s@%s\", \"licenses\": [{\"expression\": \"%s\"}], ", package[1], package[2], $2
        printf "\"hashes\": [{\"alg\": \"SHA-256\", \"content\": \"%s\"}]}", checksum[$1]
        separator = ","
    }
    END { print "\n]}" }' Cargo.lock -
