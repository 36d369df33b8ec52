#!/usr/bin/env bash
# Runs the tests that wait for time, threads or processes again and again, beside four busy loops: those that fail at times show. Not in CI.
#
#   scripts/flaky.sh                     30 times
#   scripts/flaky.sh 5 mapwire events::  5 times; of one crate, the tests whose path has one of the words
source "$(dirname "$0")/toolchain.sh"
find_rust
exec </dev/null

candidates=(
    'mapwire-host adoption:: paging:: waiting:: faults::'
    'mapwire-transport bells:: alarm:: board:: rendezvous ofi udp ring_processes'
    'mapwire-names hostile stores'
    'mapwire-launch names:: pmi:: launchers'
    'mapwire awaiting:: datagrams:: events:: libfabric:: locks:: modes:: parting:: parts:: requests:: revocation:: rpc:: signals:: waiting:: guest knocks server'
    'mapwire-c programs::'
    'mapwire-rpc-c children:: hosts:: programs::'
    'mapwire-cli donors far:: names:: run_ see::'
    'mapwire-lab ctrl_c'
    'mapwire-apps hosts:: launchers::'
)
times=${1:-30}
(($# < 2)) || candidates=("${*:2}")

cargo build --workspace --all-features --all-targets --locked "${quiet[@]}"
export MAPWIRE_LAUNCHER=${CARGO_TARGET_DIR:-$root/target}/debug/mapwire WORKSPACE_IS_BUILT=yes
loops=()
trap 'kill "${loops[@]}" 2>/dev/null || true' EXIT
for _ in 1 2 3 4; do
    while :; do :; done &
    loops+=($!)
done
failed=0
for ((run = 1; run <= times; run++)); do
    for candidate in "${candidates[@]}"; do
        read -ra words <<<"$candidate"
        log=$(cargo test --locked --quiet --all-features --no-fail-fast -p "${words[0]}" --lib --tests -- "${words[@]:1}" 2>&1) && continue
        failed=$((failed + 1))
        grep -E 'panicked at|^test .* FAILED|^error' -A 2 <<<"$log" || tail -n 20 <<<"$log"
    done
    echo "run $run of $times: $failed failures so far"
done
((failed == 0))
