# Sourced by test.sh: counts the tests that could not run, and says which of them are excused where all that tests need can be installed.
#
#   SKIPPED_TESTS   the file with a line for each: program and test, a tab, the reason; tests add to it by `skip!` of tests/testing
#   skip REASON     the same for a phase of test.sh

# What a package cannot bring: a part of the reason that a test gives, and a command that succeeds where the machine has what the test
# needs. A test is excused only if that command fails: one that does not find what is there fails CI.
excuses=(
    'network namespace|unshare --net true && nsenter --net=/proc/self/ns/net true'
    'is refused here|ip netns add mapwire-probe && ip netns del mapwire-probe'
    'has no bridges|unshare --net ip link add name net1 type bridge'
    'no forwarding|unshare --net sh -c "echo 1 >/proc/sys/net/ipv4/ip_forward"'
    'no nft|unshare --net nft "add table inet t; add chain inet t c; add rule inet t c numgen random mod 50 0 drop"'
    'namespaces of time|unshare --time --monotonic 1 --fork true'
    'mount namespace|unshare --mount --map-root-user mount -t tmpfs none /dev'
    'unmount /proc|unshare --mount umount -l /proc'
    'cgroup with a limit on memory|makes_group /sys/fs/cgroup/memory || makes_group /sys/fs/cgroup && [[ -e $made/memory.max ]]'
    'control group|makes_group /sys/fs/cgroup/unified || makes_group /sys/fs/cgroup'
    'CAP_NET_RAW|has_capability 13'
    'may lock no memory|has_capability 14'
    'io_uring refused|has_capability 14 && has_io_uring 5.19'
    'words and descriptors at once|has_io_uring 6.7'
    'no question about single ranges|has_kernel 6.11'
    'no guard pages|has_kernel 6.13'
    'tables of a tebibyte|(($(sed -n "s/^MemTotal: *\([0-9]*\).*/\1/p" /proc/meminfo) >= 12 << 20))'
    'so many mapped ranges|(($(</proc/sys/vm/max_map_count) <= 1 << 17))'
    # The test is of a machine where these are not open to all.
    'vm.unprivileged_userfaultfd is 1|[[ $(</proc/sys/vm/unprivileged_userfaultfd) != 1 ]]'
    'every user may open /dev/userfaultfd|[[ $(stat -c %a /dev/userfaultfd) != *[67] ]]'
    'userfaultfd|[[ -e /proc/sys/vm/unprivileged_userfaultfd ]] && is_unfiltered'
    # Of Rust, not of Debian; CI installs no toolchain and no tool that takes minutes to build.
    'no cargo deny|cargo deny --version'
    'known faults of crates|cargo deny fetch'
    'no Miri|cargo miri --version || cargo +nightly miri --version'
)

has_capability() { (((0x$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status) >> $1) & 1)); }
has_kernel() { [[ $(printf '%s\n' "$1" "$(uname -r)" | sort -V | head -n 1) == "$1" ]]; }
is_unfiltered() { grep -q '^Seccomp:[[:space:]]*0' /proc/self/status; }
has_io_uring() { has_kernel "$1" && is_unfiltered && [[ $(cat /proc/sys/kernel/io_uring_disabled 2>/dev/null || echo 0) == 0 ]]; }
makes_group() {
    made=$1/mapwire-probe
    [[ -d $1 ]] && mkdir "$made" 2>/dev/null && trap 'rmdir "$made"' EXIT
}

# Whether a machine on which all can be installed may skip a test for this reason.
is_excused() {
    local excuse
    for excuse in "${excuses[@]}"; do
        [[ $1 == *"${excuse%%|*}"* ]] || continue
        # In a subshell, whose traps end with it.
        if (set +e; eval "${excuse#*|}") >/dev/null 2>&1; then return 1; fi
        return 0
    done
    return 1
}

skip() {
    printf 'phase %s\t%s\n' "$phase" "$1" >>"$SKIPPED_TESTS"
    echo "skipped: $1"
}

# Each skipped test once, with all its reasons; not those that failed after all, whose names are in the file $1.
skipped_once() {
    sort -u "$SKIPPED_TESTS" | awk -F '\t' -v failures="$1" '
        BEGIN { while ((getline name < failures) > 0) failed[name] = 1 }
        { test = $1; sub(/^[^:]*::/, "", test) }
        test in failed { next }
        $1 == last { reasons = reasons "; " $2; next }
        { if (last != "") print last "\t" reasons; last = $1; reasons = $2 }
        END { if (last != "") print last "\t" reasons }'
}
