#!/usr/bin/env bash
# Runs every check there is, phase by phase, and goes on after a failure, so that one run shows them all.
# The last line is `N passed, N failed, N skipped`: the tests of all `cargo test` summaries, and a failure or a skip for each other
# phase that failed or could not run. Above it stands what was skipped, and why. The exit code is 0 only if nothing failed.
# In CI, where root can install what tests need, a skip is a failure unless scripts/skips.sh excuses it.
#
#   scripts/test.sh              all phases but benches, fuzz and sanitize
#   scripts/test.sh lint loom    some of them; unit is a part of tests
source "$(dirname "$0")/toolchain.sh"
source scripts/limited.sh
source scripts/skips.sh
exec </dev/null

all=(setup format lint deny tests features loom miri docs)
phases=("$@")
# For `ahead`: nothing is run.
only_build=
lints_what_is_built=
((${#phases[@]})) || phases=("${all[@]}")

target=${CARGO_TARGET_DIR:-$root/target}
# Progress is for a terminal, which standard error then is.
[[ -t 2 ]] || export CARGO_TERM_PROGRESS_WHEN=never
# What lint, tests and docs build: the same features, so that they share what they build.
everything=(--workspace --all-features --locked)
# A build that is thrown away needs neither what makes the next one faster nor what a debugger reads; panics name their lines all the same.
if [[ -n ${CI:-} ]]; then
    export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
    # Between the units of one crate there is little to gain, and a quarter of the time to optimise it to lose.
    export CARGO_PROFILE_DEV_LTO=off CARGO_PROFILE_TEST_LTO=off CARGO_PROFILE_DEV_CODEGEN_UNITS=4 CARGO_PROFILE_TEST_CODEGEN_UNITS=4
fi

logs=$(mktemp -d)
log=$logs/phase
clean_up=("rm -rf '$logs'")
trap 'for step in "${clean_up[@]}"; do eval "$step" || true; done' EXIT
# Other users add to it too, and reach no other temporary folder.
SKIPPED_TESTS=$(mktemp /tmp/skipped-tests.XXXXXX)
export SKIPPED_TESTS
chmod 666 "$SKIPPED_TESTS"
clean_up+=("rm -f '$SKIPPED_TESTS'")
touch "$logs/failures"
# As in root's home: tests that run something as another user must do so where he cannot enter this folder.
if [[ -n ${CI:-} && $(id -u) == 0 ]]; then
    clean_up+=("chmod $(stat -c %a .) '$root'")
    chmod 700 .
fi

# Whether cargo has the subcommand $1; says so if not.
component() {
    cargo "$1" --version >/dev/null 2>&1 && return 0
    skip "this toolchain has no cargo $1"
    return 1
}

phase_setup() {
    scripts/setup.sh || return 1
    if limited 180 scripts/setup.sh --tests; then touch "$logs/is_equipped"; else skip "what tests need cannot be installed here"; fi
}

phase_format() {
    component fmt || return 0
    cargo fmt --all --check -- --color never && cargo fmt --manifest-path fuzz/Cargo.toml --check -- --color never
}

phase_lint() {
    component clippy || return 0
    if [[ -z $lints_what_is_built ]]; then
        local deny=()
        if warnings_are_errors; then deny=(-D warnings); fi
        limited 2400 cargo clippy "${everything[@]}" --all-targets -- "${deny[@]}"
        return
    fi
    local status=0
    CARGO_TERM_COLOR=never build_everything 2>&1 | tee "$logs/lints" || status=$?
    # How cargo ends the warnings of a crate; its own are of other forms.
    if grep -q '^warning: `.*generated [0-9]* warning' "$logs/lints" && warnings_are_errors; then status=1; fi
    return $status
}

# Crates from outside: known faults, licences, duplicates. The list of faults comes from the network; without it the rest is checked.
phase_deny() {
    if ! cargo deny --version >/dev/null 2>&1; then
        skip "there is no cargo deny; to have it: cargo install --locked cargo-deny"
        return 0
    fi
    limited 300 cargo deny --all-features --log-level error check licenses bans sources || return 1
    if limited 120 cargo deny fetch >/dev/null 2>&1; then
        limited 300 cargo deny --offline --all-features --log-level error check advisories
    else
        skip "the list of known faults of crates cannot be fetched"
    fi
}

# All of the workspace, its tests too. Tests of whole commands need libraries that programs load; `cargo test` builds only what tests link.
# In one go: without the tests, crates would be built with fewer features, and with the tests once more.
build_everything() { limited 2400 cargo build "${everything[@]}" --all-targets; }

build_without_features() {
    CARGO_PROFILE_DEV_OPT_LEVEL=0 limited 600 cargo build --locked -p mapwire --example messages --target-dir "$target/features"
}

# The library as a program has it that adds it without features: few crates, and what it cannot do is said with the feature that can.
phase_features() {
    local crates messages=$target/features/debug/examples/messages said
    crates=$(cargo tree --locked -p mapwire -e normal,build --prefix none | sed 's/ (.*//' | sort -u | wc -l)
    echo "$crates crates"
    ((crates <= 41)) || return 1
    build_without_features || return 1
    limited 60 "$target/debug/mapwire" run -n 2 -- "$messages" || return 1
    limited 60 "$target/debug/mapwire" run -n 2 --transport udp --insecure -- "$messages" || return 1
    said=$(limited 60 "$target/debug/mapwire" run -n 2 --transport udp -- "$messages" 2>&1) && return 1
    grep 'feature `sealing`' <<<"$said" || return 1
    said=$(MAPWIRE_JOB_NAME=features MAPWIRE_SIZE=1 limited 60 "$messages" 2>&1) && return 1
    grep 'feature `sealing`' <<<"$said"
}

# Unit, property, integration and documentation tests, the layering and the C examples among them. The command is built with the
# tests; those that run it would otherwise build it once more, with what other features of its libraries then take.
# Most tests wait more than they compute: two halves of the test programs run side by side.
phase_tests() {
    build_everything || return
    # Not local: the trap runs when this function is over.
    ahead= beside=
    trap 'kill -- ${ahead:+-"$ahead"} ${beside:+"$beside"} 2>/dev/null || true' EXIT
    if [[ " ${phases[*]} " == *" loom "* ]]; then
        setsid nice -n 19 scripts/test.sh ahead >/dev/null 2>&1 &
        ahead=$!
    fi
    local status=0
    run_tests beside --tests >"$logs/beside" 2>&1 &
    beside=$!
    export RUSTDOC=$root/scripts/tests-rustdoc DOCUMENTED=$target/doc
    run_tests others || status=$?
    wait "$beside" || status=$?
    beside=
    cat "$logs/beside"
    ((status)) || touch "$logs/documented"
    [[ -z $ahead ]] || wait "$ahead" || true
    ahead=
    return $status
}

# Runs the test programs of one half, as scripts/tests-runner parts them.
run_tests() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER=$root/scripts/tests-runner" TESTS_RUN=$1
    # Below `nohup`, and in the background of a script, signals are ignored that tests send to the command.
    # Simulated clusters run fixed seeds and those of this commit.
    SIM_SEED=$(git rev-parse HEAD 2>/dev/null) MAPWIRE_LAUNCHER=$target/debug/mapwire WORKSPACE_IS_BUILT=yes \
        limited 3600 env --default-signal=HUP,INT,QUIT cargo test "${everything[@]}" --no-fail-fast "${@:2}"
}

# Builds on the side what later phases need, while tests run: these wait more than they compute. Those phases tell what is wrong with it.
phase_ahead() {
    limited() { shift; "$@"; }
    only_build=yes
    ( phase_loom ) || true
    build_without_features
}

# Of those, what starts no other process: for `make check`.
phase_unit() { limited 2400 cargo test "${everything[@]}" --lib --bins --no-fail-fast; }

# The rings, the doorbell, revocation, the heap's slabs, the synchronisation objects, the driver's lock and its completion words
# under every order of memory accesses that the model allows. The same features as elsewhere, so that what others wrote is not built again.
phase_loom() {
    export RUSTC_WORKSPACE_WRAPPER=$root/scripts/loom-rustc
    limited 2400 cargo test --locked --all-features -p mapwire-transport -p mapwire-host -p mapwire-segment -p mapwire-driver --lib ${only_build:+--no-run} loom
}

# Unsafe code that an interpreter can run: the rings on private memory, the lock, the words. The pure crates hold none.
phase_miri() {
    local miri
    if cargo miri --version >/dev/null 2>&1; then
        miri=(cargo miri)
    elif cargo +nightly miri --version >/dev/null 2>&1; then
        miri=(cargo +nightly miri)
    else
        skip "there is no Miri; where rustup is: rustup toolchain install nightly --profile minimal --component miri,rust-src"
        return 0
    fi
    export MIRIFLAGS="-Zmiri-disable-isolation" PROPTEST_CASES=4 CARGO_TARGET_DIR=$target/miri
    limited 1200 "${miri[@]}" test --locked -p mapwire-transport --test ring -- \
        a_payload_that a_full_ring the_longest_payload release_without through_private_memory || return 1
    limited 1200 "${miri[@]}" test --locked -p mapwire-driver --lib -- spin:: completions::
}

# The tests of machine/ under AddressSanitizer. Built apart, with all of its crates: not part of a run of all phases.
phase_sanitize() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    if ! compgen -G "$(rustc --print sysroot)/lib/rustlib/$host/lib/librustc-*_rt.asan.a" >/dev/null; then
        skip "this toolchain has no AddressSanitizer"
        return 0
    fi
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$target/sanitize
    # Faults of the views are ours to handle; what is skipped limits the address space, the descriptors or the calls that the sanitizer
    # itself needs.
    export ASAN_OPTIONS=handle_segv=0:handle_sigbus=0
    limited 1800 cargo test --locked --no-fail-fast --target "$host" \
        -p mapwire-transport -p mapwire-host -p mapwire-pager -p mapwire-driver --lib --tests -- \
        --skip mprotect_names_the_limit --skip a_small_limit_of_address_space --skip without_descriptors \
        --skip is_named_and_no_byte_is_lost --skip where_the_system_refuses_a_call
}

phase_docs() {
    if [[ -e $logs/documented ]]; then
        echo "made with the tests in them, in $target/doc"
        return
    fi
    unset RUSTC_WORKSPACE_WRAPPER
    if warnings_are_errors; then export RUSTDOCFLAGS="-D warnings"; fi
    limited 1200 cargo doc "${everything[@]}" --lib --no-deps
}

# Each bench once, briefly: that it works and that its figures can be read, not how good they are.
phase_benches() {
    local name names failed=0 rows
    # With the tests, whose build it shares.
    cargo test "${everything[@]}" --no-run || return 1
    names=$("$target/debug/mapwire" bench --list | sed 's/ .*//') || return 1
    [[ -n $names ]] || { skip "no bench is listed"; return 0; }
    for name in $names; do
        if rows=$(limited 240 "$target/debug/mapwire" bench "$name" --quick --json) && [[ $rows == *'"ratio"'* ]] &&
            ! grep -qv '"placement":"' <<<"$rows"; then
            echo "$name: $(wc -l <<<"$rows") rows"
        else
            echo "$name: failed, printed no row, or one without its placement" >&2
            failed=1
        fi
    done
    return $failed
}

# Some seconds of each fuzz target, with coverage feedback: that they build and find nothing at once.
phase_fuzz() {
    have c++ || { skip "there is no C++ compiler"; return 0; }
    unset RUSTC_WORKSPACE_WRAPPER
    # They run too briefly to make up for more.
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=0
    limited 1800 fuzz/run.sh 3
}

passed=0
failed=0
summary=()
begin=$SECONDS
for phase in "${phases[@]}"; do
    declare -F "phase_$phase" >/dev/null || { echo "test.sh: no phase '$phase'; there are: ${all[*]} unit benches fuzz sanitize" >&2; exit 2; }
done
for phase in "${phases[@]}"; do
    [[ $phase == setup ]] || find_rust || { echo "test.sh: no Rust $rust_needed; make setup installs it" >&2; exit 1; }
    # Where nothing is built upon, what is built for tests is linted as it is built: a check of its own would look at each crate once more.
    # Clippy's compiler leaves out rustc's own optimisations; those of LLVM stay.
    if [[ -n ${CI:-} && $phase == lint && " ${phases[*]} " == *" tests "* ]] && component clippy >/dev/null && clippy-driver --version >/dev/null 2>&1; then
        export RUSTC_WORKSPACE_WRAPPER=$root/scripts/tests-rustc
        lints_what_is_built=yes
    fi
    echo "== $phase"
    start=$SECONDS
    status=0
    # A subshell: what a phase changes ends with it.
    if [[ -t 2 ]]; then
        ( "phase_$phase" ) | tee "$log" || status=$?
    else
        ( "phase_$phase" ) 2>&1 | tee "$log" || status=$?
    fi
    read -r p f < <(awk '/^test result:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i - 1); if ($i ~ /^failed/) f += $(i - 1) } }
                         END { print p + 0, f + 0 }' "$log")
    passed=$((passed + p))
    failed=$((failed + f))
    sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" >>"$logs/failures"
    note=ok
    if ((status)); then
        note=FAILED
        # What failed outside a test, a build for instance.
        ((f)) || failed=$((failed + 1))
    elif grep -q "^phase $phase"$'\t' "$SKIPPED_TESTS"; then
        note=skipped
    fi
    summary+=("$(printf '%-8s %-16s %4d s' "$phase" "$note" $((SECONDS - start)))")
    echo "== $phase: $note, $((SECONDS - start)) s"
done

echo
skipped=0
excess=0
while IFS=$'\t' read -r name reason; do
    skipped=$((skipped + 1))
    # A phase has passed no test.
    [[ $name == "phase "* ]] || passed=$((passed - 1))
    if [[ -n ${CI:-} && -e $logs/is_equipped && $(id -u) == 0 ]] && ! is_excused "$reason"; then
        excess=$((excess + 1))
        echo "skipped, and must not be here: $name: $reason"
    else
        echo "skipped: $name: $reason"
    fi
done < <(skipped_once "$logs/failures")
((excess == 0)) || failed=$((failed + 1))
printf '%s\n' "${summary[@]}"
echo "all in $((SECONDS - begin)) s"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
