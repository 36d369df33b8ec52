#!/usr/bin/env bash
# Records a run: the JSON rows of benches, and which machine and commit they are of. Keep the computer idle meanwhile.
#
#   bench/runs/record.sh FOLDER [TIMES] [BENCH...]
#
# FOLDER gets BENCH-1.jsonl, BENCH-2.jsonl and so on, and machine.txt. The benches take turns, 3 times unless TIMES says
# otherwise; without BENCH they are all that `mapwire bench --list` names. A BENCH may have options: 'fault --transport udp'.
began=$PWD
source "$(dirname "$0")/../../scripts/toolchain.sh"
(($#)) || { sed -n '2,8s/^# \{0,1\}//p' bench/runs/record.sh >&2; exit 2; }
folder=$(cd "$began" && realpath -m "$1") times=${2:-3}
[[ $times =~ ^[1-9][0-9]*$ ]] || { echo "record.sh: '$times' is not a number of times" >&2; exit 2; }
mapwire=${CARGO_TARGET_DIR:-$root/target}/release/mapwire
[[ -x $mapwire ]] || { echo "record.sh: there is no $mapwire; make build makes it" >&2; exit 1; }
benches=("${@:3}")
((${#benches[@]})) || mapfile -t benches < <("$mapwire" bench --list --json | sed 's/.*"bench":"\([^"]*\)".*/\1/')
mkdir -p "$folder"
{
    git rev-parse --short HEAD
    uname -sr
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c
    sed -n 's/^MemTotal: */memory /p' /proc/meminfo
} >"$folder/machine.txt"
status=0
for ((time = 1; time <= times; time++)); do
    for bench in "${benches[@]}"; do
        echo "$bench, $time of $times" >&2
        read -ra words <<<"$bench"
        name=$(printf %s "$bench" | tr -cs 'a-z0-9' -)
        "$mapwire" bench "${words[@]}" --json >"$folder/$name-$time.jsonl" || status=1
    done
done
exit $status
