#!/usr/bin/env bash
# Runs the benches, one after another, on an optimised build; NAME in the environment picks one. Keep the computer idle
# meanwhile.
source "$(dirname "$0")/toolchain.sh"
scripts/setup.sh
find_rust
cargo_build --release --locked -p mapwire-cli -p mapwire-bench -p mapwire-apps
mapwire=${CARGO_TARGET_DIR:-target}/release/mapwire
names=${NAME:-$("$mapwire" bench --list | sed 's/ .*//')}
status=0
for name in $names; do
    echo "== $name"
    "$mapwire" bench "$name" || status=1
done
exit $status
