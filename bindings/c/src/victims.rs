//! A program's own policy for unpinning (UTLB §3.4).

use core::ffi::c_void;

use mapwire::{Candidates, ChooseVictims, Page};

use crate::arguments::{null, required};
use crate::failure::call;
use crate::node::mw_node_t;
use crate::status::mw_status_t;

/// Chooses pages of this process to unpin, when the limit on pinned pages requires room for `wanted` more.
///
/// `candidates` are the addresses of the first bytes of the `count` pages that may be unpinned, least recently used first. Write the
/// addresses of those to unpin to `victims`, best first, which has room for `count`, and return their number. Those beyond `wanted`,
/// duplicates and pages that are not candidates are ignored; if there are too few, the least recently used follow. `data` is that of
/// `mw_node_choose_victims`.
///
/// It is called while the library is locked: it must call nothing of the library, touch no shared memory, and neither wait for another
/// thread nor leave by `longjmp` or an exception. It may run in any thread, one at a time.
pub type mw_choose_victims_fn = Option<
    unsafe extern "C" fn(
        wanted: u64,
        candidates: *const u64,
        count: usize,
        victims: *mut u64,
        data: *mut c_void,
    ) -> usize,
>;

/// The program's function, with its data and room for both lists.
struct Chooser {
    function: unsafe extern "C" fn(u64, *const u64, usize, *mut u64, *mut c_void) -> usize,
    data: *mut c_void,
    candidates: Vec<u64>,
    chosen: Vec<u64>,
}

// SAFETY: the program knows that its function runs in any thread, so `data` is fit for that (`mw_choose_victims_fn`).
unsafe impl Send for Chooser {}

impl core::fmt::Debug for Chooser {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Chooser").finish_non_exhaustive()
    }
}

impl ChooseVictims for Chooser {
    fn choose(&mut self, count: u64, candidates: &Candidates<'_>, victims: &mut Vec<Page>) {
        self.candidates.clear();
        let addresses = candidates.oldest_first().map(|page| page.address());
        self.candidates.extend(addresses);
        let room = self.candidates.len();
        self.chosen.clear();
        self.chosen.resize(room, 0);
        // SAFETY: a function of the program of this very type, which the program keeps valid with its data as long as the
        // process has joined; both lists have `room` elements, are apart, and stand until it returns.
        let chosen =
            unsafe { (self.function)(count, self.candidates.as_ptr(), room, self.chosen.as_mut_ptr(), self.data) };
        let chosen = &self.chosen[..chosen.min(room)];
        victims.extend(chosen.iter().map(|address| Page::containing(*address)));
        // If there are too few: the least recently used.
        if (victims.len() as u64) < count {
            victims.extend(candidates.oldest_first());
        }
    }
}

/// Lets the program choose which pages are unpinned for `MAPWIRE_PIN_LIMIT`, in place of `MAPWIRE_POLICY`: a program often knows what it
/// will use again. Without a limit nothing is unpinned to make room, and `choose` is never called. `data` is passed to it; both must stay
/// valid as long as the process runs.
///
/// # Errors
/// `MW_ERR_STATE`: pages are pinned already; call it before anything is exported, sent or fetched.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_choose_victims(
    node: Option<&mw_node_t>,
    choose: mw_choose_victims_fn,
    data: *mut c_void,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        let chooser = Chooser {
            function: choose.ok_or_else(|| null("choose"))?,
            data,
            candidates: Vec::new(),
            chosen: Vec::new(),
        };
        Ok(node.choose_victims(chooser)?)
    })
}
