#!/usr/bin/env bash
# Measures mapwire and its peers turn by turn: one way and streams, each beside the plain put of its own two processes.
#
#   bench/peers/run.sh                installs what is missing (Debian's packages, as root or with sudo), builds, measures
#   bench/peers/run.sh --hosts        as between hosts: over UDP and TCP by loopback, each beside raw UDP between its two processes
#   bench/peers/run.sh --rounds 9     how often each has its turn (5 unless given)
#   bench/peers/run.sh --quick        one short round, to see that all of it works
#   bench/peers/run.sh --rows FILE    where the JSON rows go (bench/peers/target/rows.jsonl or hosts.jsonl unless given)
#
# A peer that cannot be had here is named and left out. Keep the computer idle meanwhile.
began=$PWD
source "$(dirname "$0")/../../scripts/toolchain.sh"
here=$root/bench/peers

AERON=1.44.1
rounds=5 quick=() rows= hosts=
while (($#)); do
    case $1 in
    --rounds) rounds=${2?--rounds takes a number}; shift ;;
    --rows) rows=$(cd "$began" && realpath -m "${2?--rows takes a file}"); shift ;;
    --quick) rounds=1 quick=(--quick) ;;
    --hosts) hosts=1 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$here/run.sh"; exit 0 ;;
    *) echo "run.sh: no option $1; --help prints those there are" >&2; exit 2 ;;
    esac
    shift
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: '$rounds' is not a number of rounds" >&2; exit 2; }
if [[ ! $rows ]]; then
    rows=$here/target/rows.jsonl
    [[ ! $hosts ]] || rows=$here/target/hosts.jsonl
fi

skip() { echo "skipped: $1: $2" >&2; }
have_ucx() { pkg-config --exists ucx 2>/dev/null || [[ -r /usr/include/ucp/api/ucp.h ]]; }
have_mpi() { have mpicc && have mpirun; }
have_fabric() { [[ -r /usr/include/rdma/fabric.h ]]; }
have_zeromq() { [[ -r /usr/include/zmq.h ]]; }
have_java() { have javac && have mvn; }

missing=()
have_ucx || missing+=(libucx-dev)
have_mpi || missing+=(libopenmpi-dev openmpi-bin)
if [[ $hosts ]]; then
    have_fabric || missing+=(libfabric-dev)
    have_zeromq || missing+=(libzmq3-dev)
    have_java || missing+=(default-jdk-headless maven)
fi
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
cargo_build --release --locked -p mapwire-cli -p mapwire-bench -p mapwire-c
built=$here/target
mkdir -p "$built"
build() { CARGO_TARGET_DIR=$built cargo_build --release --locked --manifest-path "$here/$1/Cargo.toml"; }
bench=$target/release/mapwire-bench
library() { cc -O2 -Wall -Wextra -fPIC -shared -o "$built/$1.so" "$here/$1.c" "${@:2}"; }
library mapwire -I"$root/bindings/c/include" "$target/release/libmapwire_c.a" -lm
peers=()
# Adds peers once what they need is there.
add() {
    local name=$1 why=$2 builds=$3
    if $builds; then peers+=("${@:4}"); else skip "$name" "$why"; fi
}
build_ucx() { have_ucx && library ucx -lucp -lucs; }
build_mpi() { have_mpi && OMPI_CC=cc mpicc -O2 -fPIC -shared -o "$built/openmpi.so" "$here/openmpi.c"; }
build_fabric() { have_fabric && library libfabric -lfabric; }
build_zeromq() { have_zeromq && library zeromq -lzmq; }
aeron=$built/aeron-all-$AERON.jar
build_aeron() {
    have_java || return
    [[ -r $aeron ]] || mvn -q dependency:copy -Dartifact="io.aeron:aeron-all:$AERON" -DoutputDirectory="$built" || return
    javac -cp "$aeron" -d "$built" "$here/aeron/AeronPair.java"
}
if [[ $hosts ]]; then
    peers+=(mapwire-sealed mapwire-plain)
    add UCX "libucx-dev is not here" build_ucx ucx-tcp
    add libfabric "libfabric-dev is not here" build_fabric fabric-tcp fabric-udp
    add "Open MPI" "libopenmpi-dev and openmpi-bin are not here" build_mpi openmpi-tcp
    add ZeroMQ "libzmq3-dev is not here" build_zeromq zeromq
    add Aeron "a JDK or maven is not here, or Maven Central is out of reach" build_aeron aeron
else
    peers+=(mapwire)
    add UCX "libucx-dev is not here" build_ucx ucx-posix ucx-cma
    add "Open MPI" "libopenmpi-dev and openmpi-bin are not here" build_mpi openmpi
    add iceoryx2 "crates.io is out of reach, or Rust is older than it needs" "build iceoryx2" iceoryx2
fi

shared=
trap 'rm -f "$shared"' EXIT

# Two ranks of a bench, which both get the same arguments.
both() {
    PEERS_RANK=1 "$bench" bench "$@" >/dev/null &
    local other=$! status=0
    PEERS_RANK=0 "$bench" bench "$@" || { status=$?; kill "$other" 2>/dev/null; }
    wait "$other" || status=$?
    return "$status"
}

# One turn of a peer. Ends after two minutes, whatever happens.
turn() {
    local peer=$1 kind=$2 library=$built/${1%%-*}.so
    shared=$(mktemp /dev/shm/mapwire-peers.XXXXXX)
    case $peer in
    fabric-*) library=$built/libfabric.so ;;
    iceoryx2) library=$built/release/libiceoryx2_peer.so ;;
    esac
    # What tells the ranks of a bench their memory and their case.
    export MAPWIRE_BENCH_RANK="$shared $library"
    local args=("peers-$kind" --json "${quick[@]}") status=0
    case $peer in
    mapwire) timeout 120 "$target/release/mapwire" run -n 2 --no-tag --wait poll -- "$bench" bench "${args[@]}" ;;
    ucx-posix) UCX_TLS=posix limited_both "${args[@]}" ;;
    ucx-cma) UCX_TLS=posix,cma limited_both "${args[@]}" ;;
    openmpi)
        timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 --mca pml ob1 --mca btl self,vader \
            --mca osc sm -x MAPWIRE_BENCH_RANK "$bench" bench "${args[@]}"
        ;;
    iceoryx2) limited_both "${args[@]}" ;;
    mapwire-sealed) packets "udp, sealed" "${args[@]}" ;;
    mapwire-plain) packets "udp, plain" --insecure "${args[@]}" ;;
    ucx-tcp) PEERS_HOSTS=tcp UCX_TLS=tcp UCX_NET_DEVICES=lo limited_both "${args[@]}" ;;
    fabric-tcp) PEERS_HOSTS=tcp PEERS_PROVIDER='tcp;ofi_rxm' limited_both "${args[@]}" ;;
    fabric-udp) PEERS_HOSTS=udp PEERS_PROVIDER='udp;ofi_rxd' limited_both "${args[@]}" ;;
    openmpi-tcp)
        PEERS_HOSTS=tcp timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 --mca pml ob1 --mca btl self,tcp \
            --mca btl_tcp_if_include lo -x PEERS_HOSTS -x MAPWIRE_BENCH_RANK "$bench" bench "${args[@]}"
        ;;
    zeromq) PEERS_HOSTS=tcp limited_both "${args[@]}" ;;
    aeron) aeron_rows "$kind" ;;
    esac || status=$?
    rm -f "$shared"
    return "$status"
}
export -f both
export bench
# mapwire by datagrams: the name of the transport, then options of `mapwire run`, then what the bench gets.
packets() {
    local transport=$1 options=()
    shift
    while [[ $1 == --* ]]; do options+=("$1"); shift; done
    PEERS_HOSTS=$transport timeout 120 "$target/release/mapwire" run -n 2 --no-tag --wait poll --transport udp "${options[@]}" -- \
        "$bench" bench "$@"
}
# Aeron's own two processes. Its baselines are those of the peer before it.
aeron_rows() {
    local kind=$1 unit=ns bench=peers-latency ports=$((20000 + RANDOM % 10000)) java
    [[ $kind == latency ]] || { unit=GB/s bench=peers-bandwidth; }
    java=(timeout 120 java --add-opens java.base/sun.nio.ch=ALL-UNNAMED -cp "$aeron:$built" AeronPair)
    "${java[@]}" 1 "$shared.1" "$ports" "$kind" "${#quick[@]}" >/dev/null &
    local other=$!
    "${java[@]}" 0 "$shared.0" "$ports" "$kind" "${#quick[@]}" | awk -v bench="$bench" -v unit="$unit" -v rows="$rows" '
        function field(line, name) { sub(".*\"" name "\":\"?", "", line); sub(/[",}].*/, "", line); return line }
        BEGIN {
            while ((getline line < rows) > 0)
                if (field(line, "bench") == bench) last[field(line, "bytes")] = line
        }
        $1 in last {
            base = field(last[$1], "baseline_value")
            printf "{\"bench\":\"%s\",\"peer\":\"Aeron\",\"transport\":\"udp\",\"bytes\":%d,\"ranks\":2,", bench, $1
            printf "\"placement\":\"%s\",\"flag_ns\":%s,", field(last[$1], "placement"), field(last[$1], "flag_ns")
            printf "\"value\":%s,\"unit\":\"%s\",\"baseline\":\"raw UDP\",\"baseline_value\":%s,", $2, unit, base
            printf "\"ratio\":%.4f,\"min\":%s,\"max\":%s,\"runs\":%d,\"dropped\":0}\n", $2 / base, $3, $4, $5
        }'
    local status=${PIPESTATUS[0]}
    wait "$other" && return "$status"
}
limited_both() { timeout 120 bash -c 'both "$@"' both "$@"; }

mkdir -p "$(dirname "$rows")"
: >"$rows"
for ((round = 1; round <= rounds; round++)); do
    for peer in "${peers[@]}"; do
        for kind in latency bandwidth; do
            turn "$peer" "$kind" | sed "s/^{/{\"round\":$round,/" >>"$rows" || skip "$peer, $kind" "it failed in round $round"
        done
    done
done
"$here/table.sh" "$rows"
echo "rows: $rows"
