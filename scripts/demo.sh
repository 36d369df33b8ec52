#!/usr/bin/env bash
# The demo: sets up, builds what it runs, and lets four processes search for the shortest tour through real cities on one memory.
# The program compares the tour with the one that a sequential search finds; the exit code says whether they agree.
source "$(dirname "$0")/toolchain.sh"
echo "demo: step 1 of 3: what this computer lacks is installed"
scripts/setup.sh
find_rust

target=${CARGO_TARGET_DIR:-target}
echo "demo: step 2 of 3: the command and one program are built; the first time takes two to five minutes"
# A profile and features of its own: nothing else is needed, and it is built in a tenth of the time. `make build` optimises.
cargo_build --profile demo --locked --no-default-features -p mapwire-cli -p mapwire-apps --bin mapwire --bin tsp

echo "demo: step 3 of 3: four processes, one memory"
cat <<'TEXT'
  Input: cities from this computer's table of time zones, with their great-circle distances.
  Work:  the shortest round trip through them, by branch and bound. The queue of work and the best tour so far
         lie in memory that all four share; a page that another process has is fetched when it is touched.
  Check: the same search in one process, without mapwire, must find the same length.
TEXT
echo "+ mapwire run -n 4 -- tsp"
status=0
"$target/demo/mapwire" run -n 4 -- "$target/demo/tsp" || status=$?
if ((status)); then
    echo "demo: failed (exit code $status)" >&2
    exit "$status"
fi
echo "demo: passed"
