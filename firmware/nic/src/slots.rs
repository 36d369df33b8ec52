//! A table of entries named by unguessed but checkable identifiers: an index and a generation, so that an identifier of an
//! entry that is gone never names the entry that took its place.

use alloc::vec::Vec;

/// Bits of an identifier that hold the index; the others hold the generation.
const INDEX_BITS: u32 = 16;
/// Most entries that a table can hold at a time.
pub(crate) const MAX_ENTRIES: usize = 1 << INDEX_BITS;

#[derive(Debug)]
struct Slot<T> {
    generation: u16,
    entry: Option<T>,
}

/// What an identifier names.
pub(crate) enum Named<T> {
    /// An entry.
    Entry(T),
    /// An entry that was there and is gone.
    Gone,
    /// Nothing that ever was.
    Unknown,
}

/// Entries by identifier; lookups are one index and one comparison.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Puts an entry in, and gives its identifier; `None` when [`MAX_ENTRIES`] are there already.
    pub(crate) fn insert(&mut self, entry: T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[usize::from(index)];
            slot.entry = Some(entry);
            return Some(Self::id(index, slot.generation));
        }
        let index = u16::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot {
            generation: 1,
            entry: Some(entry),
        });
        Some(Self::id(index, 1))
    }

    /// Takes an entry out; its identifier names nothing from here on.
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let (index, generation) = Self::parts(id);
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.generation != generation {
            return None;
        }
        let entry = slot.entry.take()?;
        // A slot whose generations are used up is retired rather than reused: an old identifier must never come true again.
        if slot.generation < u16::MAX {
            slot.generation += 1;
            self.free.push(index);
        }
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let (index, generation) = Self::parts(id);
        let slot = self.slots.get(usize::from(index))?;
        if slot.generation == generation {
            slot.entry.as_ref()
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let (index, generation) = Self::parts(id);
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.generation == generation {
            slot.entry.as_mut()
        } else {
            None
        }
    }

    /// As `get`, but tells an entry that is gone from one that never was.
    #[inline]
    pub(crate) fn named(&self, id: u32) -> Named<&T> {
        let (index, generation) = Self::parts(id);
        match self.slots.get(usize::from(index)) {
            Some(slot) if slot.generation == generation => match &slot.entry {
                Some(entry) => Named::Entry(entry),
                None => Named::Gone,
            },
            Some(slot) if generation != 0 && generation < slot.generation => Named::Gone,
            _ => Named::Unknown,
        }
    }

    /// Entries that are there, with their identifiers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            // An index is below `MAX_ENTRIES` since `insert` made it from a u16.
            let index = u16::try_from(index).ok()?;
            slot.entry
                .as_ref()
                .map(|entry| (Self::id(index, slot.generation), entry))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| slot.entry.is_some())
            .count()
    }

    const fn id(index: u16, generation: u16) -> u32 {
        ((generation as u32) << INDEX_BITS) | index as u32
    }

    const fn parts(id: u32) -> (u16, u16) {
        ((id & 0xffff) as u16, (id >> INDEX_BITS) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_of_a_removed_entry_never_names_its_successor() {
        let mut slots = Slots::new();
        let first = slots.insert('a').unwrap();
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b').unwrap();
        assert_ne!(first, second);
        assert_eq!(slots.get(first), None);
        assert!(matches!(slots.named(first), Named::Gone));
        assert!(matches!(slots.named(second), Named::Entry('b')));
        assert!(matches!(slots.named(77), Named::Unknown));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_slot_is_retired_when_its_generations_are_used_up() {
        let mut slots = Slots::new();
        let first = slots.insert(0).unwrap();
        let mut id = first;
        for n in 1..70_000 {
            slots.remove(id).unwrap();
            id = slots.insert(n).unwrap();
            assert_ne!(id, first);
        }
    }

    #[test]
    fn a_full_table_refuses_rather_than_reuses() {
        let mut slots = Slots::new();
        for n in 0..MAX_ENTRIES {
            assert!(slots.insert(n).is_some());
        }
        assert_eq!(slots.insert(0), None);
    }
}
