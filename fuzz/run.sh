#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (default 60) on stable Rust; exit code 1 if any of them crashed.
#
#   fuzz/run.sh 60            all targets, a minute each
#   fuzz/run.sh 60 packet     one target
#
# What is found grows fuzz/corpus, beside the committed fuzz/seeds; an input that crashes is kept in
# fuzz/artifacts, and `fuzz/target/HOST/release/TARGET FILE` (HOST as `rustc -vV` prints it) runs it again.
# Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")"

usage() { sed -n '2,9s/^# \{0,1\}//p' run.sh; exit "$1"; }
case "${1:-}" in -h | --help) usage 0 ;; esac
seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: '$seconds' is not a number of seconds" >&2; usage 2 >&2; }
shift || true
targets=("$@")
((${#targets[@]})) || targets=(packet control command trace)

# What `cargo fuzz` passes without a sanitizer: coverage counters are a compiler pass that stable Rust has too.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
flags+=" -Ccodegen-units=1 --cfg fuzzing"
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target, the flags reach the targets and not the build scripts.
RUSTFLAGS="$flags" CARGO_TARGET_DIR=target cargo build --quiet --release --locked --target "$host"

failed=()
for target in "${targets[@]}"; do
    binary=target/$host/release/$target
    [[ -x $binary && -d seeds/$target ]] || { echo "run.sh: no target '$target'" >&2; exit 2; }
    mkdir -p "corpus/$target" "artifacts/$target"
    echo "fuzz $target: $seconds s"
    log=artifacts/$target/log
    if ! "$binary" -max_total_time="$seconds" -max_len=4400 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "corpus/$target" "seeds/$target" >"$log" 2>&1; then
        failed+=("$target")
        tail -n 40 "$log" >&2
    fi
    grep -E 'Seed:|ERROR: no interesting|stat::number_of_executed_units|stat::new_units_added' "$log" | sed "s/^/  /" || true
    # A run without coverage feedback would pass and test nothing.
    grep -q 'inline 8-bit counters' "$log" || { echo "run.sh: $target was built without coverage" >&2; exit 1; }
done
if ((${#failed[@]})); then
    echo "run.sh: crashed: ${failed[*]}; the inputs are in fuzz/artifacts" >&2
    exit 1
fi
echo "fuzz: ${#targets[@]} targets, no crash"
