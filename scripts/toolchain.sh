# Sourced by the other scripts: goes to the repository's root, and finds a Rust that is new enough.
#
#   root         the repository
#   rust_needed  the oldest Rust that builds it: `rust-version` of the workspace
#   cargo_build  cargo build, which says how far it is, at a terminal or not
#   rust_linted  the version of Rust that CI has, and whose lints find nothing here: elsewhere, warnings are only shown
#   find_rust    puts a new enough rustc and cargo first in PATH; fails when there is none

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
rust_needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
rust_linted=1.95

# Whether a warning of this Rust is an error: later versions find what this one does not.
warnings_are_errors() { [[ $(version_of rustc) == "$rust_linted".* ]]; }

# Whether version $1 is at least version $2.
at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

# cargo build with these arguments. Without a terminal, a line every ten seconds says how many parts are built, and what cargo said is
# shown if it fails.
cargo_build() {
    if [[ -t 2 ]]; then
        cargo build "$@"
        return
    fi
    local log watcher status=0
    log=$(mktemp)
    (
        while sleep 10; do
            far=$(tr '\r' '\n' <"$log" | sed -n 's/^ *Building .* \([0-9]*\)\/\([0-9]*\).*/\1 of \2/p' | tail -n 1)
            echo "  $SECONDS s: ${far:-0} parts built"
        done
    ) >&2 &
    watcher=$!
    CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=80 CARGO_TERM_COLOR=never cargo build "$@" 2>"$log" || status=$?
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    if ((status)); then
        tr '\r' '\n' <"$log" | grep -v '^ *Building \[' >&2 || true
    fi
    rm -f "$log"
    return "$status"
}

have() { command -v "$1" >/dev/null 2>&1; }

# The version of the tool $1, as it prints it; empty when it does not run.
version_of() { "$1" --version 2>/dev/null | sed -n 's/^[a-z]* \([0-9][0-9.]*\).*/\1/p' || true; }

find_rust() {
    local folder version
    for folder in "$(dirname "$(command -v rustc 2>/dev/null || echo /nowhere/rustc)")" "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin" /usr/bin; do
        [[ -x $folder/cargo ]] || continue
        version=$(version_of "$folder/rustc")
        if [[ -n $version ]] && at_least "$version" "$rust_needed"; then
            # Already first in most cases; a second mention does no harm.
            PATH=$folder:$PATH
            export PATH
            return 0
        fi
    done
    return 1
}
