#!/usr/bin/env bash
# A private Slurm on this computer: a controller, nodes and munge of its own, in a temporary folder, on loopback, as this user.
#
#   scripts/slurm.sh run COMMAND…   starts it, runs the command with SLURM_CONF set, stops it: nothing is left behind
#   scripts/slurm.sh start          starts it; prints the line that lets a shell use it
#   scripts/slurm.sh stop           stops that of $SLURM_CONF and removes its folder
#
# NODES=4 says how many nodes there are. NETWORKS='PID@ADDRESS PID@ADDRESS …' puts each of them, and the controller with the first, into the
# network namespace of a process, where it has that address; so does the command of run. Exit code 3: Debian's slurmctld, slurmd, slurm-client or munge is missing.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

fail() { echo "slurm.sh: $*" >&2; exit "${code:-1}"; }

free_port() {
    local port
    for _ in {1..100}; do
        port=$((20000 + RANDOM % 10000))
        # Nobody answers on it, nor on those behind it.
        for ((at = port; at <= port + nodes; at++)); do
            (exec 3<>"/dev/tcp/127.0.0.1/$at") 2>/dev/null && continue 2
        done
        echo "$port"
        return
    done
    fail "no free ports between 20000 and 30000"
}

# Puts a command into the network of a node: `"${inside[@]}" COMMAND…` after `choose NODE`.
choose() {
    inside=(env)
    ((${#networks[@]})) && inside=(nsenter --net="/proc/${networks[$1 - 1]%@*}/ns/net")
    return 0
}

address_of() { ((${#networks[@]})) && echo "${networks[$1 - 1]#*@}" || echo 127.0.0.1; }

# Runs a daemon with its output in the folder, and notes its process.
daemon() {
    local name=$1
    shift
    setsid "$@" >"$folder/$name.out" 2>&1 </dev/null &
    echo $! >>"$folder/processes"
}

wait_for() {
    local what=$1
    shift
    for _ in {1..150}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "slurm.sh: $what; the logs say:" >&2
    tail -n 5 "$folder"/*.log "$folder"/*.out >&2
    stop
    exit 1
}

are_idle() { choose 1 && [[ $("${inside[@]}" sinfo -h -t idle -o %D) == "$nodes" ]]; }

start() {
    local name user port host
    for name in slurmctld slurmd srun munged; do
        command -v "$name" >/dev/null || code=3 fail "there is no $name (Debian: slurmctld slurmd slurm-client munge)"
    done
    nodes=${NODES:-4}
    ((${#networks[@]})) && nodes=${#networks[@]}
    [[ $nodes =~ ^[1-9][0-9]?$ ]] || fail "NODES=$nodes: expected a number from 1 to 99"
    folder=$(mktemp -d "${TMPDIR:-/tmp}/mapwire-slurm-XXXXXX")
    export SLURM_CONF=$folder/slurm.conf
    user=$(id -un)
    host=$(hostname -s)
    port=$(free_port)
    mkdir -p "$folder/state" "$folder/munge"
    chmod 700 "$folder/munge"
    (umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
    cat >"$SLURM_CONF" <<CONF
ClusterName=mapwire
SlurmctldHost=$host($(address_of 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
SlurmctldPort=$port
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmdLogFile=$folder/slurmd-%n.log
SlurmdSpoolDir=$folder/spool-%n
StateSaveLocation=$folder/state
$( ((${#networks[@]})) || echo CommunicationParameters=NoInAddrAny,NoCtldInAddrAny)
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=1
MpiDefault=none
ReturnToService=2
$(for ((at = 1; at <= nodes; at++)); do
        echo "NodeName=n$at NodeHostname=$host NodeAddr=$(address_of "$at") Port=$((port + at)) CPUs=64 State=UNKNOWN"
    done)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:8 State=UP
CONF
    # Else files are named by the job's number alone, in /tmp, where a run that was killed has left the same.
    echo "PMIxCliTmpDirBase=$folder" >"$folder/mpi.conf"
    daemon munged munged --foreground --num-threads=2 --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
        --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" --log-file="$folder/munge/log" --force
    wait_for "munged does not listen" test -S "$folder/munge/socket"
    choose 1
    daemon slurmctld "${inside[@]}" slurmctld -D -i -f "$SLURM_CONF"
    for ((at = 1; at <= nodes; at++)); do
        mkdir -p "$folder/spool-n$at"
        choose "$at"
        daemon "slurmd-n$at" "${inside[@]}" slurmd -D -N "n$at" -f "$SLURM_CONF"
    done
    wait_for "the nodes are not ready" are_idle
}

# Processes of this Slurm: those that were started, and those that have its configuration in their environment.
members() {
    local environ
    cat "$folder/processes" 2>/dev/null || true
    for environ in /proc/[0-9]*/environ; do
        if grep -qzxF "SLURM_CONF=$SLURM_CONF" "$environ" 2>/dev/null && [[ $(<"${environ%environ}comm") == slurmstepd ]]; then
            environ=${environ%/environ}
            echo "${environ#/proc/}"
        fi
    done
}

stop() {
    local process processes
    folder=$(dirname "${SLURM_CONF:?slurm.sh: SLURM_CONF is not set; nothing to stop}")
    [[ $folder == */mapwire-slurm-* && -d $folder ]] || fail "SLURM_CONF=$SLURM_CONF is not of this script"
    timeout 5 scancel -u "$(id -un)" >/dev/null 2>&1 || true
    mapfile -t processes < <(members)
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    for _ in {1..50}; do
        kill -0 "${processes[@]}" 2>/dev/null || break
        sleep 0.1
    done
    for process in "${processes[@]}"; do kill -9 "$process" 2>/dev/null || true; done
    rm -rf "$folder"
}

read -ra networks <<<"${NETWORKS-}"

case ${1-} in
    start)
        start
        echo "export SLURM_CONF=$SLURM_CONF"
        ;;
    stop) stop ;;
    run)
        shift
        (($#)) || fail "run what?"
        start
        trap stop EXIT
        trap 'exit 130' INT TERM HUP
        choose 1
        "${inside[@]}" "$@"
        ;;
    *) fail "expected start, stop or run COMMAND…" ;;
esac
