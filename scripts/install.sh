#!/usr/bin/env bash
# Installs the command with its manual pages and completions, the C library with its header, pkg-config file and manual pages, and
# the example programs.
#
#   PREFIX=/usr/local DESTDIR= scripts/install.sh
source "$(dirname "$0")/toolchain.sh"

prefix=${PREFIX:-/usr/local}
into=${DESTDIR:-}$prefix
[[ $prefix == /* ]] || { echo "install: PREFIX=$prefix: give a whole path, such as $PWD/$prefix" >&2; exit 2; }

scripts/setup.sh
find_rust
cargo build --release --locked --quiet -p mapwire-cli -p mapwire-apps -p mapwire-c
built=${CARGO_TARGET_DIR:-$root/target}/release

# $1: mode, $2: folder below the prefix, then files.
put() {
    local mode=$1 folder=$2
    shift 2
    install -d "$into/$folder" && install -m "$mode" "$@" "$into/$folder/"
}

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$built/mapwire" man "$made/man" >/dev/null
"$built/mapwire" completions bash >"$made/mapwire"
"$built/mapwire" completions zsh >"$made/_mapwire"
"$built/mapwire" completions fish >"$made/mapwire.fish"

put 755 bin "$built/mapwire"
put 755 lib/mapwire "$built"/{tsp,sor,is,lu}
put 644 share/man/man1 "$made"/man/*.1
put 644 share/bash-completion/completions "$made/mapwire"
put 644 share/zsh/site-functions "$made/_mapwire"
put 644 share/fish/vendor_completions.d "$made/mapwire.fish"
make --no-print-directory -s -C bindings/c install BUILD=no PREFIX="$prefix" DESTDIR="${DESTDIR:-}" >/dev/null

echo "installed below $into: bin/mapwire, lib/libmapwire.*, include/mapwire.h, the example programs in lib/mapwire"
if [[ -z ${DESTDIR:-} && $(id -u) == 0 ]] && have ldconfig; then
    ldconfig
fi
