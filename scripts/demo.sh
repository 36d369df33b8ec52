#!/usr/bin/env bash
# The demo: sets up, builds, and lets four processes search for the shortest tour through real cities on one memory.
# The program compares the tour with the one that a sequential search finds; the exit code says whether they agree.
source "$(dirname "$0")/toolchain.sh"
scripts/setup.sh
find_rust

target=${CARGO_TARGET_DIR:-target}
if [[ ! -x $target/release/mapwire ]]; then
    echo "demo: building; the first time takes some minutes"
fi
cargo build --release --locked "${quiet[@]}" -p mapwire-cli -p mapwire-apps

cat <<'TEXT'
demo: four processes, one memory.
  Input: cities from this computer's table of time zones, with their great-circle distances.
  Work:  the shortest round trip through them, by branch and bound. The queue of work and the best tour so far
         lie in memory that all four share; a page that another process has is fetched when it is touched.
  Check: the same search in one process, without mapwire, must find the same length.
TEXT
echo "+ mapwire run -n 4 -- tsp"
status=0
"$target/release/mapwire" run -n 4 -- "$target/release/tsp" || status=$?
if ((status)); then
    echo "demo: failed (exit code $status)" >&2
    exit "$status"
fi
echo "demo: passed"
