#!/usr/bin/env bash
# Measures mapwire and its peers turn by turn: one way and streams, each beside the plain put of its own two processes.
#
#   bench/peers/run.sh                installs what is missing (Debian's packages, as root or with sudo), builds, measures
#   bench/peers/run.sh --rounds 9     how often each has its turn (5 unless given)
#   bench/peers/run.sh --quick        one short round, to see that all of it works
#   bench/peers/run.sh --rows FILE    where the JSON rows go (bench/peers/target/rows.jsonl unless given)
#
# A peer that cannot be had here is named and left out. Keep the computer idle meanwhile.
began=$PWD
source "$(dirname "$0")/../../scripts/toolchain.sh"
here=$root/bench/peers

rounds=5 quick=() rows=$here/target/rows.jsonl
while (($#)); do
    case $1 in
    --rounds) rounds=${2?--rounds takes a number}; shift ;;
    --rows) rows=$(cd "$began" && realpath -m "${2?--rows takes a file}"); shift ;;
    --quick) rounds=1 quick=(--quick) ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$here/run.sh"; exit 0 ;;
    *) echo "run.sh: no option $1; --help prints those there are" >&2; exit 2 ;;
    esac
    shift
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: '$rounds' is not a number of rounds" >&2; exit 2; }

skip() { echo "skipped: $1: $2" >&2; }
have_ucx() { pkg-config --exists ucx 2>/dev/null || [[ -r /usr/include/ucp/api/ucp.h ]]; }
have_mpi() { have mpicc && have mpirun; }

missing=()
have_ucx || missing+=(libucx-dev)
have_mpi || missing+=(libopenmpi-dev openmpi-bin)
if ((${#missing[@]})) && have apt-get; then
    as_root=()
    [[ $(id -u) == 0 ]] || as_root=(sudo -n)
    echo "peers: installing ${missing[*]}"
    "${as_root[@]}" apt-get update -q >/dev/null &&
        DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qy --no-install-recommends "${missing[@]}" >/dev/null ||
        echo "peers: not all could be installed" >&2
fi

scripts/setup.sh
find_rust
target=${CARGO_TARGET_DIR:-$root/target}
cargo build --release --locked "${quiet[@]}" -p mapwire-cli -p mapwire-c
built=$here/target
mkdir -p "$built"
build() { CARGO_TARGET_DIR=$built cargo build --release --locked "${quiet[@]}" --manifest-path "$here/$1/Cargo.toml"; }
build pair
pair=$built/release/pair
library() { cc -O2 -Wall -Wextra -fPIC -shared -o "$built/$1.so" "$here/$1.c" "${@:2}"; }
library mapwire -I"$root/bindings/c/include" "$target/release/libmapwire_c.a" -lm
peers=(mapwire)
if have_ucx && library ucx -lucp -lucs; then
    peers+=(ucx-posix ucx-cma)
else
    skip UCX "libucx-dev is not here"
fi
if have_mpi && OMPI_CC=cc mpicc -O2 -fPIC -shared -o "$built/openmpi.so" "$here/openmpi.c"; then
    peers+=(openmpi)
else
    skip "Open MPI" "libopenmpi-dev and openmpi-bin are not here"
fi
if build iceoryx2; then
    peers+=(iceoryx2)
else
    skip iceoryx2 "crates.io is out of reach, or Rust is older than it needs"
fi

shared=
trap 'rm -f "$shared"' EXIT

# Two processes of `pair`, which both get the rank and else the same arguments.
both() {
    PEERS_RANK=1 "$pair" "$@" >/dev/null &
    local other=$! status=0
    PEERS_RANK=0 "$pair" "$@" || { status=$?; kill "$other" 2>/dev/null; }
    wait "$other" || status=$?
    return "$status"
}

# One turn of a peer. Ends after two minutes, whatever happens.
turn() {
    local peer=$1 kind=$2
    shared=$(mktemp /dev/shm/mapwire-peers.XXXXXX)
    local args=("$shared" "$kind" "${quick[@]}") status=0
    case $peer in
    mapwire) timeout 120 "$target/release/mapwire" run -n 2 --no-tag --wait poll -- "$pair" "$built/mapwire.so" "${args[@]}" ;;
    ucx-posix) UCX_TLS=posix limited_both "$built/ucx.so" "${args[@]}" ;;
    ucx-cma) UCX_TLS=posix,cma limited_both "$built/ucx.so" "${args[@]}" ;;
    openmpi)
        timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 --mca pml ob1 --mca btl self,vader \
            --mca osc sm "$pair" "$built/openmpi.so" "${args[@]}"
        ;;
    iceoryx2) limited_both "$built/release/libiceoryx2_peer.so" "${args[@]}" ;;
    esac || status=$?
    rm -f "$shared"
    return "$status"
}
export -f both
export pair
limited_both() { timeout 120 bash -c 'both "$@"' both "$@"; }

mkdir -p "$(dirname "$rows")"
: >"$rows"
for ((round = 1; round <= rounds; round++)); do
    for peer in "${peers[@]}"; do
        for kind in latency stream; do
            turn "$peer" "$kind" | sed "s/^{/{\"round\":$round,/" >>"$rows" || skip "$peer, $kind" "it failed in round $round"
        done
    done
done
"$here/table.sh" "$rows"
echo "rows: $rows"
