#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (default 60) on stable Rust; exit code 1 if any of them crashed.
#
#   fuzz/run.sh 60            all targets, a minute each
#   fuzz/run.sh 60 packet     one target
#   fuzz/run.sh 0             only builds them
#
# What is found grows fuzz/corpus, beside the committed fuzz/seeds; an input that crashes is kept in
# fuzz/artifacts, and `fuzz/target/HOST/release/TARGET FILE` (HOST as `rustc -vV` prints it) runs it again.
# Runs as many at a time as there are processors. Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")"

usage() { sed -n '2,10s/^# \{0,1\}//p' run.sh; exit "$1"; }
case "${1:-}" in -h | --help) usage 0 ;; esac
seconds=${1:-60}
[[ $seconds =~ ^(0|[1-9][0-9]*)$ ]] || { echo "run.sh: '$seconds' is not a number of seconds" >&2; usage 2 >&2; }
shift || true
targets=("$@")
((${#targets[@]})) || targets=(packet link control command trace nic nic_attack seal dsm dsm_attack node_attack broker client names rpc_record rpc_attack)

# What `cargo fuzz` passes without a sanitizer: coverage counters are a compiler pass that stable Rust has too.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
flags+=" -Ccodegen-units=1 --cfg fuzzing"
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target, the flags reach the targets and not the build scripts.
RUSTFLAGS="$flags" CARGO_TARGET_DIR=target cargo build --quiet --release --locked --target "$host" "${targets[@]/#/--bin=}"

((seconds)) || exit 0

# Fuzzes the target $1, and says what became of it.
fuzz() {
    local target=$1 log=artifacts/$1/log status=0
    "target/$host/release/$target" -max_total_time="$seconds" -max_len=4400 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target" >"$log" 2>&1 || status=1
    # A run without coverage feedback would pass and test nothing.
    grep -q 'inline 8-bit counters' "$log" || { echo "run.sh: $target was built without coverage" >&2; status=1; }
    if ((status)); then tail -n 40 "$log" >&2; fi
    echo "fuzz $target: $seconds s"
    grep -E 'Seed:|ERROR: no interesting|stat::number_of_executed_units|stat::new_units_added' "$log" | sed "s/^/  /" || true
    return $status
}

for target in "${targets[@]}"; do
    [[ -x target/$host/release/$target && -d seeds/$target ]] || { echo "run.sh: no target '$target'" >&2; exit 2; }
    mkdir -p "corpus/$target" "artifacts/$target"
done
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for target in "${targets[@]}"; do
    while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
    { fuzz "$target" || touch "$results/$target"; } &
done
wait
failed=$(ls "$results")
if [[ -n $failed ]]; then
    echo "run.sh: failed:" $failed "; inputs that crash are in fuzz/artifacts" >&2
    exit 1
fi
echo "fuzz: ${#targets[@]} targets, no crash"
