#!/usr/bin/env bash
# Null calls of a C program by libmapwire_rpc beside those of libtirpc, as it is and with a poll() that never sleeps, turn by turn.
#
#   bench/peers/rpc/run.sh                installs libtirpc-dev if it is missing (as root or with sudo), builds, measures
#   bench/peers/rpc/run.sh --rounds 9     how often each has its turn (5 unless given)
#   bench/peers/rpc/run.sh --rows FILE    where the JSON rows go (bench/peers/target/rpc.jsonl unless given)
#
# Keep the computer idle meanwhile: five rounds take half a minute.
began=$PWD
source "$(dirname "$0")/../../../scripts/toolchain.sh"
here=$root/bench/peers/rpc

rounds=5 rows=
while (($#)); do
    case $1 in
    --rounds) rounds=${2?--rounds takes a number}; shift ;;
    --rows) rows=$(cd "$began" && realpath -m "${2?--rows takes a file}"); shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$here/run.sh"; exit 0 ;;
    *) echo "run.sh: no option $1; --help prints those there are" >&2; exit 2 ;;
    esac
    shift
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: '$rounds' is not a number of rounds" >&2; exit 2; }
(($(nproc) >= 2)) || { echo "run.sh: two processors are needed, one for the client and one for the server" >&2; exit 1; }
built=$root/bench/peers/target
rows=${rows:-$built/rpc.jsonl}

if [[ ! -r /usr/include/tirpc/rpc/rpc.h ]] && have apt-get; then
    as_root=()
    [[ $(id -u) == 0 ]] || as_root=(sudo -n)
    "${as_root[@]}" apt-get install -qy --no-install-recommends libtirpc-dev >/dev/null
fi
[[ -r /usr/include/tirpc/rpc/rpc.h ]] || { echo "run.sh: libtirpc is missing; install libtirpc-dev" >&2; exit 1; }

scripts/setup.sh
find_rust
target=${CARGO_TARGET_DIR:-$root/target}
cargo build --release --locked -p mapwire-rpc-c
mkdir -p "$built"
ln -sf "$target/release/libmapwire_rpc_c.so" "$built/libmapwire_rpc.so"
ln -sf "$target/release/libmapwire_rpc_c.so" "$built/libmapwire_rpc.so.0"
cc -O2 -I/usr/include/tirpc -o "$built/rpc-tirpc" "$here/rpc.c" -ltirpc
cc -O2 -I/usr/include/tirpc -o "$built/rpc-mapwire" "$here/rpc.c" -L"$built" -Wl,-rpath,"$built" -lmapwire_rpc -ltirpc

raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
for ((round = 0; round < rounds; round++)); do
    for way in tcp udp unix tcp-spin unix-spin; do
        timeout 60 "$built/rpc-tirpc" "$way" >>"$raw"
    done
    for wait in poll adaptive event; do
        MAPWIRE_WAIT=$wait timeout 60 "$built/rpc-mapwire" mapwire >>"$raw"
    done
done

# Medians of the rounds, and how they compare with libtirpc over tcp.
field() { sed -n "s/.*\"way\":\"$1\".*\"$2\":\([0-9]*\).*\"wait\":\"$3\".*/\1/p" "$raw" | sort -n | sed -n "$((rounds / 2 + 1))p"; }
stock=$(field tcp null_ns '')
spinning=$(field tcp-spin null_ns '')
: >"$rows"
printf '%-18s %12s %14s %14s %12s %12s\n' way 'null call' 'of tcp stock' 'of tcp-spin' '1 MB call' 'flag'
while read -r way wait; do
    null=$(field "$way" null_ns "$wait") block=$(field "$way" block_ns "$wait") flag=$(field "$way" flag_ns "$wait")
    copy=$(field "$way" memcpy_ns "$wait")
    awk -v way="$way" -v wait="$wait" -v null="$null" -v block="$block" -v flag="$flag" -v copy="$copy" -v stock="$stock" \
        -v spinning="$spinning" -v rows="$rows" -v rounds="$rounds" 'BEGIN {
        printf "%-18s %9.2f us %14.3f %14.3f %9.1f us %9.3f us\n", way (wait == "" ? "" : " " wait), null / 1000, null / stock,
            null / spinning, block / 1000, flag / 1000
        printf "{\"bench\":\"rpc-c\",\"way\":\"%s\",\"wait\":\"%s\",\"rounds\":%d,\"null_ns\":%d,\"ratio\":%.4f," \
            "\"ratio_spinning\":%.4f,\"block_ns\":%d,\"memcpy_ns\":%d,\"flag_ns\":%d,\"placement\":\"processors 0 and 1\"}\n",
            way, wait, rounds, null, null / stock, null / spinning, block, copy, flag >>rows
    }'
done <<'WAYS'
tcp
udp
unix
tcp-spin
unix-spin
mapwire poll
mapwire adaptive
mapwire event
WAYS
echo "rows in $rows"
