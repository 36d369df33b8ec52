//! What this computer's page faults and pins cost, each beside the bare system call in the same
//! run. `cargo run --release -p mapwire-host --example costs`
//!
//! Every figure is the median of many runs, in microseconds; baseline and measured call take
//! turns, since a virtual machine's speed changes from moment to moment.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mapwire_host::faults::{
    Access, FaultBackend, FaultInfo, FaultKind, PageProtection, Protection, Resolution, watch,
};
use mapwire_host::page::PAGE_BYTES;
use mapwire_host::pinning::{DEFAULT_SLOTS, MlockPinner, Pinner, UringPinner};
use mapwire_host::views::{DEFAULT_BASE, MultiView, ViewLayout};
use mapwire_host::waiting::now_ns;
use mapwire_translation::{Frame, Page, PageRange};

const PAGES: usize = 512;
const ROUNDS: usize = 40;

static PROTECTION: AtomicUsize = AtomicUsize::new(0);
static SET_NS: AtomicU64 = AtomicU64::new(0);

fn median(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1000.0
}

fn timed(call: impl FnOnce()) -> u64 {
    let start = now_ns();
    call();
    now_ns() - start
}

/// Opens the page that faulted; believes that a store to a page follows a load of it.
fn serve(fault: &FaultInfo) -> Resolution {
    // SAFETY: `main` keeps the protection for as long as the watch.
    let protection = unsafe {
        &*std::ptr::with_exposed_provenance::<PageProtection>(PROTECTION.load(Ordering::Relaxed))
    };
    let Some((view, offset)) = protection.views().locate(fault.address) else {
        return Resolution::Refuse;
    };
    let (from, to) = match fault.kind {
        FaultKind::Write => (Access::Read, Access::Write),
        _ => (Access::None, Access::Read),
    };
    let start = now_ns();
    let done = protection.set(view, offset / PAGE_BYTES, 1, from, to);
    SET_NS.store(now_ns() - start, Ordering::Relaxed);
    if done.is_ok() {
        Resolution::Retry
    } else {
        Resolution::Refuse
    }
}

fn faults(backend: FaultBackend) {
    let layout = ViewLayout::new(DEFAULT_BASE, PAGES * PAGE_BYTES, 2).expect("layout");
    let views = Arc::new(MultiView::new("costs", layout).expect("views"));
    let protection = match PageProtection::new(backend, views) {
        Ok(protection) => protection,
        Err(error) => return println!("{backend}: {error}"),
    };
    PROTECTION.store(
        std::ptr::from_ref(&protection).expose_provenance(),
        Ordering::Relaxed,
    );
    let _watch = watch(layout.views_range(), backend.signal(), 0, serve).expect("watch");
    let cell = |page: usize| {
        protection
            .views()
            .application(0, page * PAGE_BYTES)
            .cast::<u64>()
    };
    let set = |page, pages, from, to| protection.set(0, page, pages, from, to).expect("set");
    set(0, PAGES, Access::None, Access::Read);
    set(0, PAGES, Access::Read, Access::None);

    let mut times: [Vec<u64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        for page in 0..PAGES {
            // SAFETY: mapped; the handler opens what is closed.
            times[0].push(timed(|| unsafe {
                black_box(cell(page).read_volatile());
            }));
            times[4].push(SET_NS.load(Ordering::Relaxed));
        }
        for page in 0..PAGES {
            // SAFETY: as above.
            times[1].push(timed(|| unsafe { cell(page).write_volatile(1) }));
            times[5].push(SET_NS.load(Ordering::Relaxed));
        }
        for page in 0..PAGES {
            times[2].push(timed(|| set(page, 1, Access::Write, Access::Read)));
        }
        for page in 0..PAGES {
            times[3].push(timed(|| set(page, 1, Access::Read, Access::None)));
        }
    }
    let [load, store, downgrade, close, open, upgrade] = times.map(|mut times| median(&mut times));
    println!("{backend}, one page, us");
    println!("  load fault, whole      {load:6.2}   of it opening the page    {open:6.2}");
    println!("  store fault, whole     {store:6.2}   of it allowing stores     {upgrade:6.2}");
    println!("  barring stores         {downgrade:6.2}");
    println!("  closing                {close:6.2}");
    for pages in [8, 64, 512] {
        let mut times: [Vec<u64>; 4] = Default::default();
        for _ in 0..200 {
            times[0].push(timed(|| set(0, pages, Access::None, Access::Read)));
            times[1].push(timed(|| set(0, pages, Access::Read, Access::Write)));
            times[2].push(timed(|| set(0, pages, Access::Write, Access::Read)));
            times[3].push(timed(|| set(0, pages, Access::Read, Access::None)));
        }
        let [open, upgrade, downgrade, close] =
            times.map(|mut times| median(&mut times) / pages as f64);
        println!(
            "  {pages:3} pages in one call, each: open {open:.3}  allow stores {upgrade:.3}  \
             bar stores {downgrade:.3}  close {close:.3}"
        );
    }
}

/// Runs the measured call and the bare one in turns: medians of pin, unpin, bare pin, bare unpin.
fn pin_costs(pinner: &mut dyn Pinner, pages: PageRange, mut bare: impl FnMut(bool)) -> [f64; 4] {
    let mut frames = [Frame::GARBAGE; 32];
    let frames = &mut frames[..pages.count as usize];
    let mut times: [Vec<u64>; 4] = Default::default();
    for _ in 0..4000 {
        times[0].push(timed(|| pinner.pin(pages, frames).expect("pin")));
        times[1].push(timed(|| pinner.unpin(pages, frames).expect("unpin")));
        times[2].push(timed(|| bare(true)));
        times[3].push(timed(|| bare(false)));
    }
    times.map(|mut times| median(&mut times))
}

fn pins() {
    let memory = vec![1u8; 40 * PAGE_BYTES];
    let first = Page::containing(memory.as_ptr().expose_provenance() as u64 + PAGE_BYTES as u64);
    let start = first.address() as usize;
    println!("pinning, us: pages  pin unpin  (bare pin unpin)  ratio");
    for count in [1u64, 2, 4, 8, 16, 32] {
        let pages = PageRange { first, count };
        let bytes = count as usize * PAGE_BYTES;
        let address = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start);
        // SAFETY: locking changes nothing that the program sees; the range is `memory`'s.
        let costs = pin_costs(&mut MlockPinner::new(), pages, |pin| unsafe {
            let done = if pin {
                libc::mlock(address, bytes)
            } else {
                libc::munlock(address, bytes)
            };
            assert_eq!(done, 0);
        });
        report("mlock", count, costs);
        let ring = io_uring::IoUring::new(1).expect("io_uring");
        ring.submitter()
            .register_buffers_sparse(1 << 14)
            .expect("slots");
        let full = [libc::iovec {
            iov_base: address,
            iov_len: bytes,
        }];
        let empty = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }];
        let mut pinner = UringPinner::new(DEFAULT_SLOTS).expect("io_uring");
        // SAFETY: nothing is ever submitted to the ring, and `memory` outlives it.
        let costs = pin_costs(&mut pinner, pages, |pin| unsafe {
            let buffer = if pin { &full } else { &empty };
            ring.submitter()
                .register_buffers_update(0, buffer, None)
                .expect("update");
        });
        report("io_uring", count, costs);
    }
}

fn report(name: &str, count: u64, [pin, unpin, bare_pin, bare_unpin]: [f64; 4]) {
    println!(
        "  {name:8} {count:3}  {pin:6.2} {unpin:6.2}  ({bare_pin:6.2} {bare_unpin:6.2})  {:.2}",
        (pin + unpin) / (bare_pin + bare_unpin)
    );
}

fn main() {
    println!("{}\n", mapwire_host::limits::Limits::read());
    FaultBackend::ALL.into_iter().for_each(faults);
    pins();
}
