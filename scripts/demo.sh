#!/usr/bin/env bash
# The demo: sets up, builds what it runs, and lets processes search for the shortest tour through real cities on one memory: first on this
# host, beside threads, then as if on two hosts. The program compares each tour with the one that a sequential search finds; the exit code
# says whether they agree.
source "$(dirname "$0")/toolchain.sh"
echo "demo: step 1 of 3: what this computer lacks is installed"
scripts/setup.sh
find_rust

target=${CARGO_TARGET_DIR:-target}
echo "demo: step 2 of 3: the command and one program are built; the first time takes two to five minutes"
# A profile and features of its own: nothing else is needed, and it is built in a tenth of the time. `make build` optimises.
cargo_build --profile demo --locked --no-default-features -p mapwire-cli -p mapwire-apps --bin mapwire --bin tsp

ranks=$(nproc)
ranks=$((ranks < 2 ? 2 : ranks > 4 ? 4 : ranks))
run=("$target/demo/mapwire" run --no-tag -n)

# Makes two hosts of network namespaces, held by the processes in `hosts`, with a line between them; fails where that is refused.
make_hosts() {
    local host end=$((SECONDS + 5))
    have ip && have nsenter && unshare --net true 2>/dev/null || return 1
    for host in 0 1; do
        unshare --net sleep 300 &
        hosts+=($!)
    done
    for host in "${hosts[@]}"; do
        while [[ $(readlink "/proc/$host/ns/net") == "$(readlink /proc/self/ns/net)" ]]; do
            ((SECONDS < end)) || return 1
            sleep 0.01
        done
    done
    in_host 0 ip link add line type veth peer name line netns "${hosts[1]}" || return 1
    for host in 0 1; do
        in_host "$host" ip address add "10.0.0.$((host + 1))/24" dev line && in_host "$host" ip link set lo up &&
            in_host "$host" ip link set line up || return 1
    done
}
in_host() { nsenter "--net=/proc/${hosts[$1]}/ns/net" "${@:2}" 2>/dev/null; }
hosts=()
trap 'kill "${hosts[@]}" 2>/dev/null || true' EXIT

# Runs a job of tsp, whose options come first, with what follows `--` as arguments of tsp.
search() {
    local options=() status=0
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    echo "+ mapwire run -n ${options[*]} -- tsp ${*:2}"
    "${run[@]}" "${options[@]}" -- "$target/demo/tsp" "${@:2}" || status=$?
    if ((status)); then
        echo "demo: failed (exit code $status)" >&2
        exit "$status"
    fi
}

echo "demo: step 3 of 3: one memory"
cat <<TEXT
  Input: cities from this computer's table of time zones, with their great-circle distances.
  Work:  the shortest round trip through them, by branch and bound. The queue of work and the best tour so far
         lie in memory that all processes share.
  Check: the same search in one process, without mapwire, must find the same length.

  On this host $ranks processes map the same memory, and need no fault and no message. As many threads of one
  process search in turn with them:
TEXT
search "$ranks" -- --against-threads --rounds 2
if make_hosts; then
    echo $'\n  On two hosts (network namespaces of this computer), what another process has is fetched when it is touched:'
    search 2 --hosts "${hosts[0]},${hosts[1]}" --launch-agent 'nsenter --net=/proc/{host}/ns/net' --
else
    echo $'\n  Network namespaces are refused here. As between hosts, what another process has is fetched when it is touched:'
    search 2 --coherence minipages --
fi
echo "demo: passed"
