//! The checks, in the order of the report.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::{Finding, doors};
use crate::run::terminal;
use mapwire_host::faults::{FaultBackend, probe};
use mapwire_host::limits::Limits;
use mapwire_host::memory::SharedBuffer;
use mapwire_host::pinning::PinnerKind;
use mapwire_host::views::{DEFAULT_BASE, MultiView, ViewLayout};
use mapwire_settings::size;
use mapwire_transport::ofi;
use mapwire_transport::rendezvous::{Broker, Client, Event, ToRank};

/// The usual shared memory of a job: what `mapwire run` asks for unless told otherwise.
const USUAL_SHARED: usize = 4 << 30;
const USUAL_VIEWS: usize = 32;

/// Runs every check. Some try what a job does, in this process, and undo it.
pub(super) fn all() -> Vec<Finding> {
    let limits = Limits::read();
    let faults = FaultBackend::ALL.map(|b| (b, probe(b)));
    let pinners = PinnerKind::ALL.map(|kind| (kind, kind.probe().map_err(|e| e.to_string())));
    let mut findings = vec![
        kernel(&limits),
        processors(&limits),
        page(&limits),
        memfd(),
        rendezvous(),
        views(&limits),
        map_count(&limits),
        address_space(&limits),
        descriptors(&limits),
    ];
    let any_faults = faults.iter().any(|(_, result)| result.is_ok());
    for (backend, result) in faults {
        findings.push(fault_backend(backend, result, any_faults));
    }
    findings.push(userfaultfd_doors());
    let any_pinner = pinners.iter().any(|(_, result)| result.is_ok());
    for (kind, result) in pinners {
        findings.push(pinner(kind, result, any_pinner));
    }
    findings.push(locked_memory(&limits));
    findings.push(libfabric());
    findings.push(output());
    findings.push(huge_pages(&limits));
    findings
        .push(Finding::ok("ptrace", "not needed: no rank looks into another; any kernel.yama.ptrace_scope will do"));
    findings.push(Finding::ok(
        "fork",
        "a rank may fork and exec; a child that does not exec must not use mapwire, and sees no shared memory",
    ));
    findings
}

/// "6.18.44-x" as (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(limits: &Limits) -> Finding {
    let release = &limits.kernel;
    match version(release) {
        Some(version) if version >= (5, 19) => Finding::ok("kernel", format!("Linux {release}")),
        Some(_) => Finding::warn(
            "kernel",
            format!("Linux {release}: page faults by SIGSEGV only"),
            "use Linux 5.19 or newer, which write-protects shared memory by userfaultfd",
        ),
        None => Finding::warn("kernel", format!("unknown release {release}"), "use Linux 5.19 or newer"),
    }
}

fn processors(limits: &Limits) -> Finding {
    match limits.processors {
        1 => Finding::warn(
            "processors",
            "1: ranks take turns, and polling only keeps the others from running",
            "mapwire run --wait event …, or allow more: taskset -pc",
        ),
        count => Finding::ok("processors", count.to_string()),
    }
}

fn page(limits: &Limits) -> Finding {
    if limits.page_bytes == 4096 {
        return Finding::ok("page size", "4096 bytes");
    }
    let found = format!("{} bytes; mapwire counts in pages of 4096", limits.page_bytes);
    Finding::fail("page size", found, "boot a kernel with pages of 4096 bytes")
}

fn memfd() -> Finding {
    match SharedBuffer::allocate("doctor", 1 << 20) {
        Ok(_) => Finding::ok("memory files", "memfd_create, sealing and mapping work"),
        Err(error) => Finding::fail(
            "memory files",
            error.to_string(),
            "allow memfd_create in the sandbox or container (seccomp profile)",
        ),
    }
}

/// A job of one: broker, token, board, and a descriptor passed through.
fn rendezvous() -> Finding {
    match try_rendezvous() {
        Ok(took) => Finding::ok(
            "rendezvous",
            format!("ranks find each other and pass descriptors (joined in {} µs)", took.as_micros()),
        ),
        Err(why) => Finding::fail(
            "rendezvous",
            why,
            "allow abstract Unix sockets of type SOCK_SEQPACKET and SCM_RIGHTS in the sandbox or container",
        ),
    }
}

fn try_rendezvous() -> Result<Duration, String> {
    let limit = Duration::from_secs(5);
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let broker = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let no_channel = Box::new(|_, _| Err(std::io::ErrorKind::Unsupported.into()));
            match Broker::new(&[0], no_channel) {
                Ok(mut broker) => {
                    let _ = tell.send(Ok(broker.address().clone()));
                    while !stop.load(Ordering::Acquire) {
                        broker.handle_ready(Instant::now());
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
                Err(error) => drop(tell.send(Err(error.to_string()))),
            }
        })
    };
    let outcome = told.recv().map_err(|e| e.to_string()).and_then(|r| r).and_then(|address| {
        let start = Instant::now();
        let text = |e: mapwire_transport::rendezvous::RendezvousError| e.to_string();
        let mut client = Client::join(&address, 0, limit).map_err(text)?;
        let took = start.elapsed();
        client.pass(0, 1, std::io::stderr().as_fd()).map_err(text)?;
        let Event::Message(ToRank::Passed { .. }, Some(_)) = client.wait(limit).map_err(text)? else {
            return Err("a passed descriptor does not arrive".to_owned());
        };
        client.leave().map_err(text)?;
        Ok(took)
    });
    stop.store(true, Ordering::Release);
    let _ = broker.join();
    outcome
}

/// Maps what a job with the usual options maps, at the same addresses.
fn views(limits: &Limits) -> Finding {
    let what =
        format!("{} of shared memory in {USUAL_VIEWS} views at {DEFAULT_BASE:#x}", size::show(USUAL_SHARED as u64));
    let layout = ViewLayout::new(DEFAULT_BASE, USUAL_SHARED, USUAL_VIEWS);
    match layout.and_then(|layout| MultiView::new("doctor", layout)) {
        Ok(_) => Finding::ok("views", format!("{what} can be mapped")),
        Err(error) if limits.address_space.0.is_some() => {
            Finding::warn("views", format!("{what}: {error}"), "ulimit -v unlimited, or a smaller --shared or --views")
        }
        Err(error) => Finding::warn(
            "views",
            format!("{what}: {error}"),
            "a smaller --shared or --views, or another MAPWIRE_SHARED_BASE",
        ),
    }
}

fn map_count(limits: &Limits) -> Finding {
    let check = "map count";
    let Some(most) = limits.max_map_count else {
        return Finding::warn(check, "vm.max_map_count cannot be read", "mount /proc");
    };
    let found = format!("vm.max_map_count {most}, {} in use here", limits.mapped_ranges);
    if most >= 65530 {
        return Finding::ok(check, found);
    }
    Finding::warn(
        check,
        format!("{found}: many views or SIGSEGV faults may need more"),
        "sudo sysctl -w vm.max_map_count=65530",
    )
}

fn address_space(limits: &Limits) -> Finding {
    match limits.address_space.0 {
        None => Finding::ok("address space", "unlimited"),
        Some(bytes) if bytes >= 1 << 40 => Finding::ok("address space", format!("{bytes} bytes")),
        Some(bytes) => Finding::warn(
            "address space",
            format!(
                "{bytes} bytes; the usual job takes {} of addresses (not of memory)",
                size::show(((USUAL_VIEWS + 1) * USUAL_SHARED) as u64)
            ),
            "ulimit -v unlimited",
        ),
    }
}

fn descriptors(limits: &Limits) -> Finding {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let found = format!(
        "{} now, {} at most",
        limits.descriptors,
        hard.map_or_else(|| "no limit".to_owned(), |n| n.to_string())
    );
    match hard {
        Some(most) if most < 1024 => Finding::warn(
            "descriptors",
            format!("{found}: too few for many ranks (run raises its own limit to the most)"),
            "`nofile` in /etc/security/limits.conf, or LimitNOFILE= of the service",
        ),
        _ => Finding::ok("descriptors", found),
    }
}

fn fault_backend(backend: FaultBackend, result: Result<(), String>, any: bool) -> Finding {
    let check = match backend {
        FaultBackend::Userfaultfd => "userfaultfd",
        FaultBackend::Sigsegv => "sigsegv",
    };
    match (result, backend) {
        (Ok(()), FaultBackend::Userfaultfd) => Finding::ok(check, "minor and write-protect faults in SIGBUS mode work"),
        (Ok(()), FaultBackend::Sigsegv) => Finding::ok(check, "mprotect and SIGSEGV work (the fall-back)"),
        (Err(why), FaultBackend::Userfaultfd) if any => Finding::warn(
            check,
            format!("{why}; page faults are taken by SIGSEGV instead"),
            "allow userfaultfd in the sandbox or container, or: sudo chmod 666 /dev/userfaultfd",
        ),
        (Err(why), FaultBackend::Sigsegv) if any => Finding::warn(check, why, "nothing to do while userfaultfd works"),
        (Err(why), _) => Finding::fail(check, why, "allow userfaultfd or mprotect in the sandbox or container"),
    }
}

/// Which ways to a userfaultfd are open. The first or the second is enough; the line above says
/// whether what is behind it suffices.
fn userfaultfd_doors() -> Finding {
    let check = "userfault ways";
    let tried = doors::try_all();
    let texts = tried.map(|(way, result)| match result {
        Ok(()) => format!("{way}: yes"),
        Err(errno) => format!("{way}: no ({errno})"),
    });
    let found = texts.join("; ");
    if tried[0].1.is_ok() || tried[1].1.is_ok() {
        return Finding::ok(check, found);
    }
    Finding::warn(
        check,
        found,
        "sudo chmod 666 /dev/userfaultfd, or sudo sysctl -w vm.unprivileged_userfaultfd=1 before Linux 5.11, or allow userfaultfd in the container (seccomp profile)",
    )
}

fn pinner(kind: PinnerKind, result: Result<(), String>, any: bool) -> Finding {
    let check = match kind {
        PinnerKind::IoUring => "io_uring",
        PinnerKind::Mlock | PinnerKind::Cheapest => "mlock",
    };
    match (result, kind) {
        (Ok(()), PinnerKind::IoUring) => {
            Finding::ok(check, "pins a page; used by default, as it is cheaper than mlock")
        }
        (Ok(()), _) => Finding::ok(check, "pins a page"),
        (Err(why), PinnerKind::IoUring) if any => Finding::warn(
            check,
            format!("{why}; pages are pinned by mlock, which is slower"),
            "sudo sysctl -w kernel.io_uring_disabled=0, or allow io_uring in the container (seccomp profile)",
        ),
        (Err(why), _) if any => Finding::warn(check, why, "ulimit -l, see `locked memory`"),
        (Err(why), _) => Finding::fail(check, why, "allow mlock or io_uring, see `locked memory`"),
    }
}

/// Providers of libfabric that could carry packets. Without libfabric only `--transport ofi` is missing.
fn libfabric() -> Finding {
    let check = "libfabric";
    let listed = ofi::version().and_then(|version| Ok((version, ofi::providers()?)));
    let ((major, minor), providers) = match listed {
        Ok(listed) => listed,
        Err(error) => {
            let found = format!("none, so there is no --transport ofi ({error})");
            return Finding {
                mend: Some("sudo apt-get install libfabric1 libfabric-bin".to_owned()),
                ..Finding::ok(check, found)
            };
        }
    };
    let each = providers.iter().map(|provider| {
        let (major, minor) = provider.version;
        let rma = if provider.rma { "packets, stores and fetches" } else { "packets" };
        let at = provider.interfaces.join(", ");
        format!("{} {major}.{minor} ({rma}; {at})", provider.name)
    });
    let found = match each.collect::<Vec<_>>() {
        none if none.is_empty() => "no provider with reliable, ordered endpoints".to_owned(),
        each => each.join("; "),
    };
    Finding::ok(check, format!("{major}.{minor}, --transport ofi: {found}"))
}

fn locked_memory(limits: &Limits) -> Finding {
    let check = "locked memory";
    let mend = "`memlock` in /etc/security/limits.conf, `ulimit -l unlimited` as root, or LimitMEMLOCK=infinity of the service; or --pin-limit below it";
    match limits.locked_memory.0 {
        _ if limits.may_lock_without_limit => Finding::ok(check, "no limit (CAP_IPC_LOCK)"),
        None => Finding::ok(check, "no limit"),
        Some(bytes) if bytes >= 64 << 20 => Finding::ok(check, format!("{} a rank", size::show(bytes))),
        Some(bytes) => Finding::warn(
            check,
            format!(
                "{}: a rank that sends from more memory than that pins and unpins again and again",
                size::show(bytes)
            ),
            mend,
        ),
    }
}

fn output() -> Finding {
    match terminal::open(0) {
        Ok(_) => Finding::ok("output", "ranks write to pseudo-terminals, line by line"),
        Err(error) => Finding::warn(
            "output",
            format!(
                "no pseudo-terminal ({error}): ranks write to pipes, and lose their last lines when another rank fails"
            ),
            "mount devpts on /dev/pts, with /dev/ptmx",
        ),
    }
}

fn huge_pages(limits: &Limits) -> Finding {
    match limits.huge_shared_pages.as_deref() {
        Some(choice @ ("always" | "within_size" | "advise")) => {
            Finding::ok("huge pages", format!("{choice} for shared memory"))
        }
        Some(choice) => Finding::ok("huge pages", format!("{choice} for shared memory; not needed")),
        None => Finding::ok("huge pages", "not in this kernel; not needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn kernel_releases_of_all_shapes_are_read() {
        assert_eq!(version("6.18.44-fc-v769"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn whatever_is_not_right_comes_with_a_mend_and_names_are_distinct() {
        let findings = all();
        for finding in &findings {
            assert_eq!(finding.mend.is_some(), finding.state != Verdict::Ok, "{finding:?}");
            assert!(!finding.finding.is_empty());
        }
        let mut names: Vec<_> = findings.iter().map(|f| f.check).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), findings.len());
    }

    #[test]
    fn a_job_of_one_can_be_set_up_here() {
        try_rendezvous().unwrap();
    }

    #[test]
    fn losing_one_of_two_ways_is_a_warning_and_losing_both_a_failure() {
        let lost = || Err("refused".to_owned());
        assert_eq!(fault_backend(FaultBackend::Userfaultfd, lost(), true).state, Verdict::Warn);
        assert_eq!(fault_backend(FaultBackend::Sigsegv, lost(), false).state, Verdict::Fail);
        assert_eq!(pinner(PinnerKind::IoUring, lost(), true).state, Verdict::Warn);
        assert_eq!(pinner(PinnerKind::Mlock, lost(), false).state, Verdict::Fail);
    }
}
