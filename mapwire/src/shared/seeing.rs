//! Costs of the shared memory by call site of allocation, for `mapwire run --summary`.

use core::cell::Cell;
use core::panic::Location;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use mapwire_driver::profile::{CallSite, Means, Profile, Right, Span};
use mapwire_dsm::{Access, Action, Dsm, Minipage, PAGE_BYTES, Protection};
use mapwire_host::views::ViewLayout;
use mapwire_node::Watcher;

use super::{Memory, Shared};
use crate::config::Coherence;
use crate::node::Node;

/// True while a rank of this process counts.
static IS_ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Call site of the next allocation, as a binding to another language says it.
    static CALLER: Cell<Option<(&'static str, u32)>> = const { Cell::new(None) };
}

/// Says where the calling thread makes its next allocation, in place of the caller in Rust: a file and its line, or a name and 0.
#[doc(hidden)]
#[inline]
pub fn allocates_at(file: impl FnOnce() -> &'static str, line: u32) {
    if IS_ON.load(Ordering::Relaxed) {
        CALLER.set(Some((file(), line)));
    }
}

/// As [`allocates_at`], of a function of a binding, unless the thread has said more.
#[doc(hidden)]
#[inline]
pub fn allocates_by(function: &'static str) {
    if IS_ON.load(Ordering::Relaxed) && CALLER.get().is_none() {
        CALLER.set(Some((function, 0)));
    }
}

/// Begins to count, if the launcher wants that: the memory is opened.
pub(super) fn begin(node: &Node, coherence: Coherence) -> Option<&Arc<Profile>> {
    let profile = node.profile()?;
    let kept = match coherence {
        Coherence::Auto => Means::Processor,
        Coherence::Minipages => Means::Minipages,
        Coherence::Hlrc => Means::Lazy,
    };
    profile.open(node.openings().load(Ordering::Relaxed), kept);
    if kept != Means::Processor {
        IS_ON.store(true, Ordering::Relaxed);
    }
    Some(profile)
}

impl Shared {
    /// Counts an allocation for the place of its caller, or for its name.
    #[inline]
    #[track_caller]
    pub(super) fn note_allocation(&self, address: u64, bytes: u64, name: Option<&str>) {
        self.note_allocations(address, address, bytes, name);
    }

    /// As [`note_allocation`](Self::note_allocation), of rows in several views from one at `first` to one of `bytes` bytes at `last`.
    #[inline]
    #[track_caller]
    pub(super) fn note_allocations(&self, first: u64, last: u64, bytes: u64, name: Option<&str>) {
        if IS_ON.load(Ordering::Relaxed) {
            self.count_allocations([first, last], bytes, name, Location::caller());
        }
    }

    #[cold]
    fn count_allocations(&self, ends: [u64; 2], bytes: u64, name: Option<&str>, caller: &'static Location<'static>) {
        let told = CALLER.take();
        let Memory::Protocol(protocol) = &self.inner.memory else { return };
        let Some(profile) = self.node().profile() else { return };
        let (text, line) = match (name, told) {
            (Some(name), _) => (name, 0),
            (None, Some(told)) => told,
            (None, None) => (caller.file(), caller.line()),
        };
        // In the memory, whatever the view.
        let [first, last] =
            ends.map(|address| protocol.layout().locate(address as usize).map(|(_, offset)| offset as u64));
        if let (Some(first), Some(last)) = (first, last) {
            profile.note_allocation(first, last.saturating_sub(first) + bytes, CallSite { text, line });
        }
    }
}

/// Counts what is done with minipages and pages, while the driver is held.
#[derive(Debug)]
pub(super) struct Counting(pub(super) Arc<Profile>);

impl Counting {
    /// Counts a fault that the protocol must serve.
    pub(super) fn handle_fault(&self, layout: &ViewLayout, dsm: &Dsm, address: usize, access: Access) {
        let Some((view, offset)) = layout.locate(address) else { return };
        let (view, offset) = (view as u16, offset as u64);
        let page = offset / PAGE_BYTES;
        let span = match dsm.minipage_at(view, page) {
            Some((minipage, _)) => span(&minipage),
            None => Span { view, offset: page * PAGE_BYTES, bytes: 0 },
        };
        self.0.note_fault(span, offset, if access == Access::Write { Right::Write } else { Right::Read });
    }
}

fn span(minipage: &Minipage) -> Span {
    Span { view: minipage.view, offset: minipage.offset_bytes, bytes: minipage.length_bytes }
}

fn page(page: u64) -> Span {
    Span { view: 0, offset: page * PAGE_BYTES, bytes: PAGE_BYTES }
}

impl Watcher for Counting {
    fn handle_action(&self, action: &Action) {
        match *action {
            Action::Protect { minipage, protection } => {
                let right = match protection {
                    Protection::None => Right::None,
                    Protection::Read => Right::Read,
                    Protection::Write => Right::Write,
                };
                self.0.note_right(span(&minipage), right);
            }
            Action::SendMinipage { minipage, message, .. } => {
                for after in message.views().iter() {
                    let Span { view, offset, bytes } = span(&minipage);
                    let offset = offset + bytes * u64::from(after);
                    self.0.note_moved(Span { view: view + after, offset, bytes }, bytes);
                }
            }
            Action::Fetch { page: first, pages, .. } => {
                for fetched in first..first + pages {
                    self.0.note_moved(page(fetched.into()), PAGE_BYTES);
                }
            }
            _ => {}
        }
    }

    fn handle_changes(&self, of: u64, bytes: u64) {
        self.0.note_diff(page(of), bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use mapwire_driver::profile::{Report, file_of};
    use mapwire_dsm::{Message, Views};

    use super::*;

    #[test]
    fn bytes_of_all_minipages_of_a_set_and_of_all_pages_of_a_run_are_counted_where_they_lie() {
        let private = std::fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(private).tempdir().unwrap();
        let profile = Profile::create(folder.path(), 0, 2, || 1).unwrap();
        profile.open(0, Means::Lazy);
        let counting = Counting(Arc::new(profile));
        let minipage = Minipage { view: 1, offset_bytes: 5 * PAGE_BYTES + 64, length_bytes: 64 };
        let views = Views::new(0b1011).unwrap();
        let (thread, access) = (0, Access::Read);
        let message = Message::Grant { minipage, thread, access, acks: 0, data: true, done: false, views };
        counting.handle_action(&Action::SendMinipage { to: 1, minipage, message });
        counting.handle_action(&Action::Fetch { from: 1, page: 20, pages: 3, into: None });
        let report = Report::read(&std::fs::read(file_of(folder.path(), 0)).unwrap()).unwrap();
        let mut found: Vec<_> = report.units.iter().map(|unit| (unit.view(), unit.first, unit.bytes)).collect();
        found.sort_unstable();
        let fetched = (20..23).map(|page| (0, page * PAGE_BYTES, PAGE_BYTES));
        let stored = [0, 1, 3].map(|after| (1 + after, minipage.offset_bytes + 64 * u64::from(after), 64));
        assert_eq!(found, fetched.chain(stored).collect::<Vec<_>>());
    }
}
