//! Where records lie in the memory that a peer lends for them: who stores there says where, and the peer says when it is done.
//!
//! The lowest room that is long enough is taken, so that as few pages are used, over and over, as records need at a time. Records may be
//! given back in any order.

use alloc::collections::BTreeMap;

/// What a place in the memory is a multiple of: records begin on lines of their own.
pub const LINE: u64 = 64;

/// The rooms of a memory.
#[derive(Debug, Default)]
pub(crate) struct Area {
    bytes: u64,
    /// Free ranges, by their begin; no two touch.
    free: BTreeMap<u64, u64>,
    /// What records have, by their begin.
    taken: BTreeMap<u64, u64>,
}

const fn whole(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(LINE)
}

impl Area {
    /// All of a memory of `bytes`, free.
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = bytes - bytes % LINE;
        let mut free = BTreeMap::new();
        if bytes > 0 {
            free.insert(0, bytes);
        }
        Self {
            bytes,
            free,
            taken: BTreeMap::new(),
        }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the lowest room of `bytes`, at least a line; `None` as long as none is so long.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Option<u64> {
        let bytes = whole(bytes.max(1))?;
        let (&at, &there) = self.free.iter().find(|&(_, &there)| there >= bytes)?;
        self.free.remove(&at);
        if there > bytes {
            self.free.insert(at + bytes, there - bytes);
        }
        self.taken.insert(at, bytes);
        Some(at)
    }

    /// Gives back what a record does not need behind its first `bytes`. False: nothing was reserved there, or less.
    pub(crate) fn shrink(&mut self, at: u64, bytes: u64) -> bool {
        let Some(bytes) = whole(bytes.max(1)) else {
            return false;
        };
        match self.taken.get_mut(&at) {
            Some(there) if bytes <= *there => {
                let left = *there - bytes;
                *there = bytes;
                self.put_back(at + bytes, left);
                true
            }
            _ => false,
        }
    }

    /// Gives a record's room back. False: there is none.
    pub(crate) fn release(&mut self, at: u64) -> bool {
        match self.taken.remove(&at) {
            Some(bytes) => {
                self.put_back(at, bytes);
                true
            }
            None => false,
        }
    }

    /// Bytes that records have.
    #[cfg(test)]
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken.values().sum()
    }

    fn put_back(&mut self, at: u64, mut bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(behind) = self.free.remove(&(at + bytes)) {
            bytes += behind;
        }
        if let Some((&before, length)) = self.free.range_mut(..at).next_back()
            && before + *length == at
        {
            *length += bytes;
            return;
        }
        self.free.insert(at, bytes);
    }
}
