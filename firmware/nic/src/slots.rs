//! A table of entries named by checkable identifiers: an index and a generation, so that an identifier of an entry that is gone
//! never names its successor.

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

pub(crate) enum Named<T> {
    Entry(T),
    /// An entry that was there and is gone.
    Gone,
    /// Never assigned.
    Unknown,
}

/// What happens to a slot whose generations are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It is never used again, so that even the oldest identifier is never mistaken.
    Retired,
    /// Its generations start again. For entries that come and go without end, and whose identifiers nobody keeps while 65,535
    /// others are used.
    Recycled,
}

/// Entries by identifier; a lookup is one index and one comparison.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
    entries: usize,
    ending: Ending,
}

impl<T> Slots<T> {
    pub(crate) const fn new(ending: Ending) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), entries: 0, ending }
    }

    /// Bytes by which the table grows with the next entry.
    pub(crate) fn growth_bytes(&self) -> usize {
        if self.free.is_empty() && self.slots.len() == self.slots.capacity() {
            self.step() * Self::PLACE_BYTES
        } else {
            0
        }
    }

    /// Bytes of a slot and its entry in the free list.
    const PLACE_BYTES: usize = size_of::<Slot<T>>() + size_of::<u16>();

    /// Slots by which a full table grows.
    fn step(&self) -> usize {
        (self.slots.len() / 4).max(16)
    }

    /// Bytes of the table, free slots included.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>() + self.free.capacity() * size_of::<u16>()
    }

    /// Index of an identifier's slot, below [`MAX_ENTRIES`].
    pub(crate) fn place(id: u32) -> usize {
        Self::parts(id).0.into()
    }

    /// Inserts an entry and returns its identifier; `None` if [`MAX_ENTRIES`] are present.
    pub(crate) fn insert(&mut self, entry: T) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[usize::from(index)];
            slot.entry = Some(entry);
            self.entries += 1;
            return Some(Self::id(index, slot.generation));
        }
        let index = u16::try_from(self.slots.len()).ok()?;
        if self.slots.len() == self.slots.capacity() {
            let step = self.step();
            self.slots.reserve_exact(step);
            // Room for all of them to be free, so that removing an entry allocates nothing.
            self.free.reserve_exact(self.slots.capacity());
        }
        self.entries += 1;
        self.slots.push(Slot { generation: 1, entry: Some(entry) });
        Some(Self::id(index, 1))
    }

    /// Removes an entry; its identifier is invalid from here on.
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let (index, generation) = Self::parts(id);
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.generation != generation {
            return None;
        }
        let entry = slot.entry.take()?;
        self.entries -= 1;
        if slot.generation < u16::MAX {
            slot.generation += 1;
            self.free.push(index);
        } else if self.ending == Ending::Recycled {
            slot.generation = 1;
            self.free.push(index);
        }
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let (index, generation) = Self::parts(id);
        let slot = self.slots.get(usize::from(index))?;
        if slot.generation == generation { slot.entry.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let (index, generation) = Self::parts(id);
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.generation == generation { slot.entry.as_mut() } else { None }
    }

    /// As `get`, but distinguishes an entry that is gone from one that never was.
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

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut())
    }

    /// All entries with their identifiers.
    fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            // An index is below `MAX_ENTRIES`: `insert` made it from a u16.
            let index = u16::try_from(index).ok()?;
            slot.entry.as_ref().map(|entry| (Self::id(index, slot.generation), entry))
        })
    }

    /// Identifiers of the entries for which `pick` is true.
    pub(crate) fn ids_where(&self, pick: impl Fn(&T) -> bool) -> Vec<u32> {
        self.iter().filter(|(_, entry)| pick(entry)).map(|(id, _)| id).collect()
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.entries
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
        let mut slots = Slots::new(Ending::Retired);
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
        let mut slots = Slots::new(Ending::Retired);
        let first = slots.insert(0).unwrap();
        let mut id = first;
        for n in 1..70_000 {
            slots.remove(id).unwrap();
            id = slots.insert(n).unwrap();
            assert_ne!(id, first);
        }
    }

    #[test]
    fn a_recycled_slot_serves_for_ever_in_the_same_place() {
        let mut slots = Slots::new(Ending::Recycled);
        let first = slots.insert(0).unwrap();
        let mut id = first;
        let mut came_back = 0;
        for n in 1..200_000 {
            slots.remove(id).unwrap();
            id = slots.insert(n).unwrap();
            assert_eq!((slots.len(), id & 0xffff), (1, first & 0xffff));
            assert_ne!(id >> 16, 0);
            came_back += usize::from(id == first);
        }
        assert_eq!(came_back, 3);
    }

    #[test]
    fn the_growth_that_is_foretold_is_the_growth_that_comes() {
        let mut slots = Slots::new(Ending::Retired);
        let mut ids = Vec::new();
        for n in 0..1000 {
            let expected = slots.bytes() + slots.growth_bytes();
            ids.push(slots.insert(n).unwrap());
            assert_eq!(slots.bytes(), expected, "entry {n}");
        }
        let full = slots.bytes();
        for id in ids {
            slots.remove(id).unwrap();
        }
        assert_eq!((slots.bytes(), slots.growth_bytes()), (full, 0));
    }

    #[test]
    fn a_full_table_refuses_rather_than_reuses() {
        let mut slots = Slots::new(Ending::Retired);
        for n in 0..MAX_ENTRIES {
            assert!(slots.insert(n).is_some());
        }
        assert_eq!(slots.insert(0), None);
    }
}
