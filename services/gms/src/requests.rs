//! Getpages and discardpages of this node that are under way.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::config::GetPage;
use crate::name::{PageHash, PageName};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Get(GetPage),
    /// All copies up to this version.
    Discard(u32),
}

/// A request that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub asked: Asked,
    pub name: PageName,
    pub hash: PageHash,
}

/// Requests by the numbers that they carry.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pending: BTreeMap<u32, Pending>,
    /// Pages of this node's own frames that the program copies: by tag.
    copying: Vec<(u64, u32)>,
}

impl Requests {
    /// Requests of the program, and pages that it copies.
    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.copying.len()
    }

    pub(crate) fn insert(&mut self, sequence: u32, pending: Pending) {
        self.pending.insert(sequence, pending);
    }

    pub(crate) fn get(&self, sequence: u32) -> Option<&Pending> {
        self.pending.get(&sequence)
    }

    /// Ends the request of that number for that page, if there is one.
    pub(crate) fn end(&mut self, sequence: u32, name: PageName) -> Option<Pending> {
        let pending = self.pending.get(&sequence)?;
        if pending.name != name { None } else { self.pending.remove(&sequence) }
    }

    /// The numbers of all that are under way.
    pub(crate) fn sequences(&self) -> Vec<u32> {
        self.pending.keys().copied().collect()
    }

    pub(crate) fn begin_copy(&mut self, tag: u64, sequence: u32) {
        self.copying.push((tag, sequence));
    }

    pub(crate) fn end_copy(&mut self, tag: u64) -> Option<u32> {
        let at = self.copying.iter().position(|&(copied, _)| copied == tag)?;
        Some(self.copying.swap_remove(at).1)
    }
}
