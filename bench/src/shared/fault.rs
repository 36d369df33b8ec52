//! `fault`: page faults of the shared memory, beside the raw parts of each.

use std::os::fd::AsRawFd;

use rustix::fs::MemfdFlags;

use super::*;
use crate::Transport;

/// A fault and a protection change on this computer alone: what no protocol can be faster than.
struct RawFault {
    protection: PageProtection,
    _watch: Watch,
}

static RAW: AtomicUsize = AtomicUsize::new(0);

fn open_page(info: &FaultInfo) -> Resolution {
    // SAFETY: `RawFault` keeps the protection, boxed, until its watch is dropped, which waits for handlers.
    let protection = unsafe { &*(RAW.load(Ordering::Acquire) as *const PageProtection) };
    let Some((view, offset)) = protection.views().locate(info.address) else {
        return Resolution::Refuse;
    };
    let (from, to) = match info.kind {
        FaultKind::Write => (Access::Read, Access::Write),
        _ => (Access::None, Access::Read),
    };
    match protection.set(view, offset / PAGE_BYTES, 1, from, to) {
        Ok(()) => Resolution::Retry,
        Err(_) => Resolution::Refuse,
    }
}

impl RawFault {
    fn new(shared: &Shared) -> Result<Box<Self>, BenchError> {
        // Far above the shared memory.
        let layout = ViewLayout::new(0x5000_0000_0000, MINIPAGES * PAGE_BYTES, 1)?;
        let views = Arc::new(MultiView::new("bench-faults", layout)?);
        let protection = PageProtection::new(shared.faults(), views)?;
        let watched = watch(layout.views_range(), shared.faults().signal(), 0, open_page)?;
        let raw = Box::new(Self { protection, _watch: watched });
        RAW.store(std::ptr::from_ref(&raw.protection) as usize, Ordering::Release);
        Ok(raw)
    }

    /// Microseconds of a load fault, of a store fault after it, and of what the owner of a page does for a reader (bars
    /// stores) and for a writer (closes it, from `held` on).
    fn costs(&self, held: Access) -> Result<[f64; 4], BenchError> {
        let at = |page: usize| self.protection.views().application(0, page * PAGE_BYTES).cast::<u64>();
        let mut times: [Vec<f64>; 4] = Default::default();
        for page in 0..MINIPAGES {
            // SAFETY: mapped and aligned; `open_page` opens it.
            times[0].push(timed_us(|| unsafe {
                black_box(touch(at(page)));
            }));
        }
        for page in 0..MINIPAGES {
            // SAFETY: as above.
            times[1].push(timed_us(|| unsafe { poke(at(page), 1) }));
        }
        for page in 0..MINIPAGES {
            let set = |from, to| self.protection.set(0, page, 1, from, to);
            let mut outcome = Ok(());
            times[2].push(timed_us(|| outcome = set(Access::Write, Access::Read)));
            outcome?;
            set(Access::Read, held)?;
            times[3].push(timed_us(|| outcome = set(held, Access::None)));
            outcome?;
        }
        Ok(times.map(|mut times| median(&mut times)))
    }
}

fn timed_us(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_nanos() as f64 / 1000.0
}

/// `mapwire bench fault`.
pub(crate) fn fault(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    // A case names the bytes of a minipage and the ranks that read it before rank 0 stores to it.
    let mut jobs = Vec::new();
    for bytes in [128, 4096] {
        for copies in 0..=if plan.quick { 1 } else { 3 } {
            jobs.push((2 + copies, bytes, copies));
        }
    }
    if role().is_none() {
        let mut options = vec!["--wait", "poll"];
        let is_remote = plan.transport == Transport::Udp;
        if is_remote {
            options.extend(["--transport", "udp"]);
        }
        if plan.insecure {
            options.push("--insecure");
        }
        for (ranks, bytes, copies) in jobs {
            let mut case = format!("{bytes} {copies}");
            let memory = rustix::fs::memfd_create("mapwire-bench", MemfdFlags::CLOEXEC)?;
            if is_remote {
                rustix::fs::ftruncate(&memory, PAGE_BYTES as u64)?;
                let (process, file) = (std::process::id(), memory.as_raw_fd());
                case += &format!(" /proc/{process}/fd/{file}");
            }
            Job { bench: "fault", ranks, options: &options, case: &case }.run(plan, report.is_json())?;
        }
        return Ok(());
    }
    let bytes_of = |case: &str| case.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(4096);
    in_jobs(
        "fault",
        plan,
        report,
        &[],
        bytes_of,
        |_, _| String::new(),
        |station, case, report| {
            let bytes = bytes_of(case);
            let copies: u64 = case.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
            let raw = RawFault::new(station.shared)?;
            let mut placements = Placements::default();
            for (owner, how) in OWNERS.iter().enumerate() {
                if copies > 0 && *how != "polling" {
                    continue;
                }
                for access in ["read", "write", "upgrade"] {
                    if copies > 0 && access == "read" {
                        continue;
                    }
                    fault_case(
                        plan,
                        station,
                        &raw,
                        &mut placements,
                        report,
                        FaultCase { bytes, copies, owner, access },
                    )?;
                }
            }
            Ok(())
        },
    )
}

struct FaultCase {
    bytes: usize,
    copies: u64,
    owner: usize,
    access: &'static str,
}

fn fault_case(
    plan: Plan,
    station: &mut Station<'_>,
    raw: &RawFault,
    placements: &mut Placements,
    report: &mut Report,
    case: FaultCase,
) -> Result<(), BenchError> {
    let FaultCase { bytes, copies, owner, access } = case;
    let effort = Effort::planned(plan, 3, 15);
    let station = std::cell::RefCell::new(station);
    let source = vec![1_u8; bytes];
    let mut landing = vec![0_u8; bytes];
    let figures = beside::<BenchError>(
        effort,
        placements,
        || station.borrow_mut().look(),
        || {
            // raw fault + the owner's protection change + two one-way messages + copy
            let held = if access == "upgrade" { Access::Read } else { Access::Write };
            let [load, store, bar, close] = raw.costs(held)?;
            let round_trip = station.borrow_mut().round_trip()?;
            let copy = timed_us(|| {
                for _ in 0..64 {
                    landing.copy_from_slice(black_box(&source));
                    black_box(&mut landing);
                }
            }) / 64.0;
            if plan.transport == Transport::Udp {
                let fault = if access == "read" { load } else { store };
                return Ok(fault + round_trip);
            }
            let parts = if access == "read" { load + bar } else { store + close };
            Ok(parts + round_trip + if access == "upgrade" { 0.0 } else { copy })
        },
        || {
            let mut station = station.borrow_mut();
            station.order(what::PREPARE, copies, 0);
            station.prepare(copies)?;
            station.gather();
            if access == "upgrade" {
                for minipage in &station.minipages {
                    black_box(minipage.get(0));
                }
            }
            station.order(what::SERVE, owner as u64, 0);
            station.gather();
            if OWNERS[owner] == "sleeping" {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut times = Vec::with_capacity(MINIPAGES);
            for minipage in &station.minipages {
                times.push(timed_us(|| {
                    if access == "read" {
                        black_box(minipage.get(0));
                    } else {
                        minipage.set(0, 1);
                    }
                }));
            }
            Ok(median(&mut times))
        },
    );
    let point = format!("{access} fault, owner {}", OWNERS[owner]);
    let Some(figures) = report.settled(&point, figures)? else {
        return Ok(());
    };
    let station = station.into_inner();
    let (transport, baseline) = match plan.transport {
        Transport::Shm => ("shm", "raw fault + protection change + flag round trip + copy"),
        Transport::Udp | Transport::Ofi => ("udp", "raw fault + raw UDP round trip"),
    };
    let fields = vec![
        ("access", json!(access)),
        ("bytes", json!(bytes)),
        ("owner", json!(OWNERS[owner])),
        ("copies", json!(copies)),
        ("faults", json!(station.shared.faults().to_string())),
        ("ranks", json!(station.node.size())),
        ("transport", json!(transport)),
    ];
    report.rows(&fields, "us", baseline, &figures);
    Ok(())
}
