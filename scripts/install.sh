#!/usr/bin/env bash
# Installs the commands with their manual pages and completions, the C libraries with header, pkg-config files and manual pages, the
# programs that come with the command, licences and examples.
#
#   PREFIX=/usr/local DESTDIR= scripts/install.sh
#   PREFIX=/usr/local DESTDIR= scripts/install.sh --uninstall   removes them
#   BUILD=no scripts/install.sh                                 installs what was built before
#   scripts/install.sh --build                                  builds only
source "$(dirname "$0")/toolchain.sh"

prefix=${PREFIX:-/usr/local}
into=${DESTDIR:-}$prefix
commands=(mapwire mapwire-bench mapwire-lab)
programs=(tsp sor is lu lu-nc radix tasks nbody)
built=${CARGO_TARGET_DIR:-$root/target}/release

[[ $prefix == /* ]] || { echo "install: PREFIX=$prefix: give a whole path, such as $PWD/$prefix" >&2; exit 2; }

c_libraries() {
    local folder
    for folder in bindings/c bindings/rpc; do
        make --no-print-directory -s -C "$folder" "$@" BUILD=no PREFIX="$prefix" DESTDIR="${DESTDIR:-}" >/dev/null
    done
}

uninstall() {
    rm -f "${commands[@]/#/$into/bin/}" "$into"/share/man/man1/mapwire{,-*}.1 "$into/share/bash-completion/completions/mapwire" \
        "$into/share/zsh/site-functions/_mapwire" "$into/share/fish/vendor_completions.d/mapwire.fish"
    rm -rf "$into/lib/mapwire" "$into/share/doc/mapwire"
    c_libraries uninstall
    echo "removed what was installed below $into"
}

build() {
    scripts/setup.sh
    find_rust
    cargo_build --release --locked -p mapwire-cli -p mapwire-lab -p mapwire-bench -p mapwire-apps -p mapwire-c -p mapwire-far -p mapwire-rpc-c
}

# Root's PATH has no cargo that a user has installed, and what root builds the user could not build upon.
build_as_owner() {
    local owner
    owner=$(stat -c %U "$root")
    if [[ $(id -u) == 0 && ${SUDO_USER:-root} != root && $SUDO_USER == "$owner" ]]; then
        sudo -u "$SUDO_USER" -H env ${CARGO_TARGET_DIR:+CARGO_TARGET_DIR="$CARGO_TARGET_DIR"} scripts/install.sh --build
    else
        build
    fi
}

# $1: mode, $2: folder below the prefix, then files.
put() {
    local mode=$1 folder=$2
    shift 2
    install -d "$into/$folder" && install -m "$mode" "$@" "$into/$folder/"
}

case ${1-} in
    --uninstall) uninstall; exit ;;
    --build) build; exit ;;
esac
[[ ${BUILD:-yes} == no ]] || build_as_owner

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$built/mapwire" man "$made/man" >/dev/null
"$built/mapwire" completions bash >"$made/mapwire"
"$built/mapwire" completions zsh >"$made/_mapwire"
"$built/mapwire" completions fish >"$made/mapwire.fish"

strip=
if have strip; then strip=strip; fi
put 755 bin "${commands[@]/#/$built/}"
put 755 lib/mapwire "${programs[@]/#/$built/}" "$built/libmapwire_far.so"
if [[ $strip ]]; then
    (cd "$into" && strip --strip-unneeded "${commands[@]/#/bin/}" "${programs[@]/#/lib/mapwire/}" lib/mapwire/libmapwire_far.so)
fi
put 644 share/man/man1 "$made"/man/*.1
put 644 share/bash-completion/completions "$made/mapwire"
put 644 share/zsh/site-functions "$made/_mapwire"
put 644 share/fish/vendor_completions.d "$made/mapwire.fish"
put 644 share/doc/mapwire LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md
put 644 share/doc/mapwire/examples/c bindings/c/examples/{Makefile,*.c}
put 644 share/doc/mapwire/examples/rpc bindings/rpc/examples/{Makefile,*.c,*.x}
put 644 share/doc/mapwire/examples/rust mapwire/examples/*.rs
c_libraries install STRIP="$strip"

echo "installed below $into: bin/mapwire, mapwire-lab and mapwire-bench, lib/libmapwire.*, lib/libmapwire_rpc.*, include/mapwire.h, programs in lib/mapwire, examples in share/doc/mapwire"
if [[ -z ${DESTDIR:-} && $(id -u) == 0 ]] && have ldconfig; then
    ldconfig
fi
