#!/usr/bin/env bash
# Runs the tests that wait for time, threads or processes again and again, beside four busy loops: those that fail at times show. Not in CI.
#
#   scripts/flaky.sh                     30 times
#   scripts/flaky.sh 5 mapwire events::  5 times; of one crate, the tests whose paths have one of the words
#   LOOPS=0 scripts/flaky.sh             without busy loops, where something else keeps the processors busy
source "$(dirname "$0")/toolchain.sh"
find_rust
exec </dev/null

fail() {
    echo "flaky.sh: $*" >&2
    exit 1
}

candidates=(
    'mapwire-host adoption:: waiting:: faults::'
    'mapwire-pager tests::'
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

# The tests of crate $1 that have one of the words $2… in their path, all at once; further arguments are the test programs'.
tests() {
    cargo test --locked --quiet --all-features --no-fail-fast -p "$1" --tests -- "${@:2}" 2>&1
}

cargo build --workspace --all-features --all-targets --locked
export MAPWIRE_LAUNCHER=${CARGO_TARGET_DIR:-$root/target}/debug/mapwire WORKSPACE_IS_BUILT=yes
# All is built before the first run; and each word selects something.
for candidate in "${candidates[@]}"; do
    read -ra words <<<"$candidate"
    list=$(tests "${words[0]}" --list) || fail "$list"
    for word in "${words[@]:1}"; do
        grep -q "$word.*: test$" <<<"$list" || fail "no test of ${words[0]} has \"$word\" in its path"
    done
done

loops=() found=$(mktemp)
trap 'rm -f "$found"; kill "${loops[@]}" 2>/dev/null || true' EXIT
for ((i = 0; i < ${LOOPS:-4}; i++)); do
    while :; do :; done &
    loops+=($!)
done
failed=0
for ((run = 1; run <= times; run++)); do
    for candidate in "${candidates[@]}"; do
        read -ra words <<<"$candidate"
        log=$(tests "${words[@]}") && continue
        failed=$((failed + 1))
        # A test that forks may panic hundreds of times.
        grep -E 'panicked at|^error' -A 2 <<<"$log" >"$found" || tail -n 20 <<<"$log" >"$found"
        head -n 60 "$found"
    done
    echo "run $run of $times: $failed failures so far, $SECONDS s"
done
((failed == 0))
