#!/usr/bin/env bash
# Runs real programs with half the memory that they need: under swap space and under mapwire far, beside no limit. Needs root.
#
#   bench/far/run.sh FOLDER           all of it; FOLDER gets machine.txt, rows in programs.jsonl (after those that are there), and what
#                                     mapwire bench says of faults
#   bench/far/run.sh FOLDER --quick   a sixteenth of each size, to see that all of it works
#   --only PROGRAM,...                sort, sqlite, numpy, 'numpy files', redis, 'redis bgsave', faults
#   --stores STORE,...                swap, zram, disk, donor, donors; no limit always runs
#   --kills no                        donors are not killed
#   --seconds N                       the most that one run may take (150)
#   --minutes N                       the most that all of them take together (18); what would begin later is left out
#   --work FOLDER                     where inputs, swap and far files lie: a folder of a disk (/var/tmp)
#   --built FOLDER                    take mapwire and its library from there, and build nothing
#
# SORT_MB, SQLITE_MB, NUMPY_MB, NUMPY_FILES_MB, REDIS_MB, REDIS_BGSAVE_MB and FAULTS_MB say how large they are.
began=$PWD
source "$(dirname "$0")/../../scripts/toolchain.sh"
here=$root/bench/far

usage() { sed -n '2,16s/^# \{0,1\}//p' "$here/run.sh"; }
NUMPY=2.4.6
folder= options=() built= work=/var/tmp quick= benches=1
while (($#)); do
    case $1 in
    --quick) options+=(--quick) quick=--quick ;;
    --only) options+=(--only "${2?--only takes names of programs}") benches=; shift ;;
    --stores | --kills | --seconds | --minutes) options+=("$1" "${2?$1 takes a value}"); shift ;;
    --work) work=$(cd "$began" && realpath -m "${2?--work takes a folder}"); shift ;;
    --built) built=$(cd "$began" && realpath -m "${2?--built takes a folder}"); shift ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "run.sh: no option $1; --help prints those there are" >&2; exit 2 ;;
    *) folder=$(cd "$began" && realpath -m "$1") ;;
    esac
    shift
done
[[ $folder ]] || { usage >&2; exit 2; }

if [[ ! $built ]]; then
    scripts/setup.sh
    find_rust
    cargo_build --release --locked -p mapwire-far -p mapwire-cli -p mapwire-bench
    built=${CARGO_TARGET_DIR:-$root/target}/release
fi
[[ -x $built/mapwire && -r $built/libmapwire_far.so ]] ||
    { echo "run.sh: $built lacks mapwire or libmapwire_far.so; without --built they are built" >&2; exit 1; }

# NumPy is the registry's, in an environment of its own.
python=$here/target/python/bin/python3
if ! "$python" -c 'import numpy' 2>/dev/null; then
    python3 -m venv "$here/target/python" ||
        { echo "run.sh: no environment for Python: apt-get install python3-venv" >&2; exit 1; }
    "$python" -m pip install --quiet "numpy==$NUMPY"
fi

mkdir -p "$folder"
{
    git rev-parse --short HEAD
    uname -sr
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c
    sed -n 's/^MemTotal: */memory /p' /proc/meminfo
    for setting in swappiness page-cluster; do echo "vm.$setting $(<"/proc/sys/vm/$setting")"; done
    echo "transparent huge pages $(</sys/kernel/mm/transparent_hugepage/enabled)"
    findmnt -no SOURCE,FSTYPE -T "$work"
} >"$folder/machine.txt"
status=0
"$python" -B "$here/compare.py" --mapwire "$built/mapwire" --rows "$folder/programs.jsonl" --folder "$work" "${options[@]}" || status=$?
((status < 2)) || exit "$status"
if [[ $benches ]]; then
    for bench in far-fault far-scan; do
        "$built/mapwire" bench "$bench" $quick --json >"$folder/$bench.jsonl" || status=1
    done
fi
[[ ! -e $folder/programs.jsonl ]] || "$here/table.sh" "$folder/programs.jsonl"
exit "$status"
