# Sourced by the other scripts: goes to the repository's root, and finds a Rust that is new enough.
#
#   root         the repository
#   rust_needed  the oldest Rust that builds it: `rust-version` of the workspace
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

# For cargo: its progress is for whoever watches at a terminal.
quiet=()
[[ -t 2 ]] || quiet=(--quiet)

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
