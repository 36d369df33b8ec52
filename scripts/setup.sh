#!/usr/bin/env bash
# Installs what building, testing and the demo need and this computer lacks, from Debian's own packages; says nothing
# when nothing is missing. Needs root or sudo only when it has something to install.
#
#   scripts/setup.sh           what building and the demo need
#   scripts/setup.sh --tests   also a browser, which looks at the pages that the laboratory writes, valgrind, which runs the C
#                              examples, tshark, which runs the dissector, libfabric, Open MPI and Slurm, which start ranks, and etcd, by
#                              which they meet, fish, ssh and groff, and rpcgen, libtirpc and rpcbind for calls by C programs; without them these tests are skipped
source "$(dirname "$0")/toolchain.sh"

packages=()
why=()
lacks() { why+=("$1"); shift; packages+=("$@"); }

have cc || lacks "a C compiler" gcc libc6-dev
have c++ || lacks "a C++ compiler (for the fuzzer)" g++ libc6-dev
have make || lacks "make" make
have pkg-config || lacks "pkg-config" pkg-config
[[ -r /usr/share/zoneinfo/zone1970.tab ]] || lacks "the table of time zones (the demo's cities)" tzdata
# Rust's crates come over TLS.
[[ -d /etc/ssl/certs && -n $(ls /etc/ssl/certs 2>/dev/null) ]] || lacks "certificates of the package registry" ca-certificates
if [[ ${1-} == --tests ]]; then
    have chromium || have chromium-browser || have google-chrome || lacks "a browser (for the tests of reports)" chromium
    have tshark || lacks "tshark (for the test of the dissector)" tshark
    have valgrind || lacks "valgrind (for the tests of the C examples)" valgrind
    have mpirun || lacks "mpirun (for the tests of launchers)" openmpi-bin
    have mpiexec.hydra || lacks "mpiexec.hydra (for the tests of launchers)" mpich
    { have srun && [[ -x /usr/sbin/slurmctld && -x /usr/sbin/slurmd && -x /usr/sbin/munged ]]; } ||
        lacks "Slurm (for the tests of launchers)" slurmctld slurmd slurm-client munge
    compgen -G '/usr/lib/*/pmix2/lib/libpmix.so' >/dev/null || lacks "PMIx for Slurm (for the tests of launchers)" libpmix-dev
    have etcd || lacks "etcd (for the tests of names)" etcd-server
    have ip || [[ -x /usr/sbin/ip ]] || lacks "ip (for the tests over several hosts)" iproute2
    have nft || [[ -x /usr/sbin/nft ]] || lacks "nft (for the tests over several hosts)" nftables
    { have rpcgen && [[ -r /usr/include/tirpc/rpc/rpc.h ]]; } ||
        lacks "rpcgen and libtirpc (for the tests of calls by C programs)" rpcsvc-proto libtirpc-dev
    [[ -x /sbin/rpcbind || -x /usr/sbin/rpcbind ]] || lacks "rpcbind (for the tests of calls by C programs)" rpcbind
    have fish || lacks "fish (for the test of completions)" fish
    have ssh || lacks "ssh (for the tests over several hosts)" openssh-client
    have groff || lacks "groff (for the test of the manual)" groff-base
    have fi_info || lacks "libfabric (for the tests of its transport)" libfabric1 libfabric-bin
fi
need_rust=false
find_rust || { need_rust=true; why+=("Rust $rust_needed or later"); }

((${#why[@]})) || exit 0

echo "setup: this computer lacks:"
printf '  %s\n' "${why[@]}"

if ! have apt-get; then
    echo "setup: there is no apt-get here; please install these, then try again" >&2
    exit 1
fi
if [[ $(id -u) == 0 ]]; then
    as_root=()
elif have sudo && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
elif have sudo && [[ -t 0 ]]; then
    as_root=(sudo)
else
    as_root=(false)
fi

# The first of Debian's names for Rust whose version will do: rustc where it is new enough, else rustc-web, which
# stable releases update for browsers.
rust_packages() {
    local suffix candidate version
    for suffix in "" -web; do
        candidate=$(apt-cache policy "rustc$suffix" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*[0-9]\).*/\1/p')
        if [[ -n $candidate ]] && at_least "$candidate" "$rust_needed"; then
            version="rustc$suffix cargo$suffix rustfmt$suffix"
            if [[ $suffix ]]; then version+=" rust$suffix-clippy"; else version+=" rust-clippy"; fi
            echo "$version"
            return 0
        fi
    done
    return 1
}

if [[ ${as_root[*]-} == false ]]; then
    echo "setup: to install them takes root; as root, run: $root/scripts/setup.sh" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
echo "setup: asking for the list of packages"
"${as_root[@]}" apt-get update -q >/dev/null
if $need_rust; then
    if ! rust=$(rust_packages); then
        echo "setup: Debian's packages have no Rust $rust_needed here; please install it, then try again" >&2
        exit 1
    fi
    read -ra rust <<<"$rust"
    packages+=("${rust[@]}")
fi
echo "setup: installing ${packages[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install them; the lines above say why" >&2
    exit 1
fi
find_rust || { echo "setup: Rust $rust_needed was installed but does not answer; does another rustc come first in PATH?" >&2; exit 1; }
echo "setup: done; $(rustc --version)"
