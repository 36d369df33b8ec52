//! The objects whose home is here: a table of bounded size, whose memory the OS supplies on first use.

use core::ops::{Index, IndexMut};

use alloc::vec::Vec;

use super::call::ObjectKind;
use crate::{Rank, tables};

/// Nobody, in holders and links.
pub(super) const NOBODY: u32 = u32::MAX;

/// Items with numbers that stay, of which there are no more than at the start was said.
#[derive(Debug)]
pub(super) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
    most: u32,
}

impl<T> Slab<T> {
    /// `None` if the machine refuses memory.
    pub(super) fn new(most: u32) -> Option<Self> {
        let (mut items, mut free) = (Vec::new(), Vec::new());
        items.try_reserve_exact(most as usize).ok()?;
        free.try_reserve_exact(most as usize).ok()?;
        Some(Self { items, free, most })
    }

    pub(super) fn insert(&mut self, item: T) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            self.items[at as usize] = item;
            return Some(at);
        }
        let at = self.items.len() as u32;
        (at < self.most).then(|| self.items.push(item))?;
        Some(at)
    }

    pub(super) fn remove(&mut self, at: u32) {
        self.free.push(at);
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.items[at as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.items[at as usize]
    }
}

/// An object, or that a thread reads a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) object: u64,
    /// The thread that reads it; `NOBODY` for the object itself.
    pub(super) reader: u32,
    /// `None`: it is destroyed.
    pub(super) kind: Option<ObjectKind>,
    pub(super) holder: u32,
    /// Readers; threads that have arrived; how often a thread reads.
    pub(super) count: u32,
    /// Threads that meet.
    pub(super) parties: u32,
    pub(super) value: u64,
    /// Code of what is reduced.
    pub(super) how: u8,
    /// The queue.
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Entry {
    pub(super) fn new(object: u64, reader: u32, kind: ObjectKind) -> Self {
        Self {
            object,
            reader,
            kind: Some(kind),
            holder: NOBODY,
            count: 0,
            parties: 0,
            value: 0,
            how: 0,
            first: NOBODY,
            last: NOBODY,
        }
    }

    /// Whether an object that nobody knows is in this state.
    fn is_initial(&self) -> bool {
        let is_unused = self.holder == NOBODY && self.first == NOBODY && self.count == 0;
        self.kind.is_some() && is_unused && self.parties == 0 && self.value == 0
    }
}

/// The objects by number.
#[derive(Debug)]
pub(super) struct Table {
    entries: Slab<Entry>,
    /// Open addressing: numbers of entries, and 1; 0 for none.
    index: Vec<u32>,
}

impl Table {
    /// `None` if the machine refuses memory.
    pub(super) fn new(objects: u32) -> Option<Self> {
        let places = (objects as usize).checked_mul(2)?.next_power_of_two();
        Some(Self { entries: Slab::new(objects)?, index: tables::zeroes(places)? })
    }

    /// The most entries.
    pub(super) fn most(&self) -> u32 {
        self.entries.most
    }

    fn start(&self, object: u64, reader: u32) -> usize {
        let mixed = mixed(object ^ u64::from(reader.wrapping_add(1)) << 40);
        (mixed >> 24) as usize & (self.index.len() - 1)
    }

    /// The place in the index of an entry, or where it would be.
    fn place(&self, object: u64, reader: u32) -> usize {
        let mut place = self.start(object, reader);
        while let Some(at) = self.index[place].checked_sub(1) {
            let entry = &self.entries[at];
            if (entry.object, entry.reader) == (object, reader) {
                break;
            }
            place = (place + 1) & (self.index.len() - 1);
        }
        place
    }

    pub(super) fn find(&self, object: u64, reader: u32) -> Option<u32> {
        self.index[self.place(object, reader)].checked_sub(1)
    }

    /// Enters what is not there; `None`: there is no room, and nothing destroyed that could be forgotten.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<u32> {
        let at = match self.entries.insert(entry) {
            Some(at) => at,
            None => {
                let (destroyed, _) = self.iter().find(|(_, entry)| entry.kind.is_none())?;
                self.remove(destroyed);
                self.entries.insert(entry)?
            }
        };
        let place = self.place(entry.object, entry.reader);
        self.index[place] = at + 1;
        Some(at)
    }

    pub(super) fn remove(&mut self, at: u32) {
        let Entry { object, reader, .. } = self.entries[at];
        let mask = self.index.len() - 1;
        let mut hole = self.place(object, reader);
        self.index[hole] = 0;
        self.entries.remove(at);
        // Those behind it move up, unless they begin behind the hole.
        let mut next = (hole + 1) & mask;
        while let Some(at) = self.index[next].checked_sub(1) {
            let Entry { object, reader, .. } = self.entries[at];
            let start = self.start(object, reader);
            if (next.wrapping_sub(start) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.index[hole] = core::mem::take(&mut self.index[next]);
                hole = next;
            }
            next = (next + 1) & mask;
        }
    }

    /// Forgets an object that is as if it had never been used.
    pub(super) fn tidy(&mut self, at: u32) {
        if self.entries[at].is_initial() {
            self.remove(at);
        }
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.index.iter().filter_map(|at| at.checked_sub(1)).map(|at| (at, &self.entries[at]))
    }
}

impl Index<u32> for Table {
    type Output = Entry;

    fn index(&self, at: u32) -> &Entry {
        &self.entries[at]
    }
}

impl IndexMut<u32> for Table {
    fn index_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.entries[at]
    }
}

/// Fibonacci hashing: the upper half of the bits is well mixed.
fn mixed(object: u64) -> u64 {
    object.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The rank that keeps an object. By other bits than its place in the table, which would be crowded otherwise.
pub(super) fn home(object: u64, ranks: u16) -> Rank {
    ((mixed(object) >> 48) % u64::from(ranks)) as Rank
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_table_holds_what_was_entered_and_not_removed(steps in proptest::collection::vec((1u64..40, 0u32..3), 0..300)) {
            let mut table = Table::new(24).unwrap();
            let mut model = BTreeSet::new();
            for (object, reader) in steps {
                let reader = reader.wrapping_sub(1);
                match table.find(object, reader) {
                    Some(at) => {
                        prop_assert!(model.remove(&(object, reader)));
                        table.remove(at);
                    }
                    None => {
                        prop_assert!(!model.contains(&(object, reader)));
                        let entered = table.insert(Entry::new(object, reader, ObjectKind::Mutex));
                        prop_assert_eq!(entered.is_some(), model.len() < 24);
                        if entered.is_some() {
                            model.insert((object, reader));
                        }
                    }
                }
                for &(object, reader) in &model {
                    let at = table.find(object, reader).unwrap();
                    prop_assert_eq!((table[at].object, table[at].reader), (object, reader));
                }
                prop_assert_eq!(table.iter().count(), model.len());
            }
        }
    }

    #[test]
    fn a_full_table_forgets_what_is_destroyed() {
        let mut table = Table::new(2).unwrap();
        let new = |object| Entry::new(object, NOBODY, ObjectKind::Flag);
        assert!(table.insert(Entry { kind: None, ..new(1) }).is_some() && table.insert(new(2)).is_some());
        assert!(table.insert(new(3)).is_some());
        assert_eq!((table.find(1, NOBODY), table.insert(new(4))), (None, None));
    }
}
