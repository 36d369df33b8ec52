//! The pool of frames that pages are moved into and out of.
//!
//! A slot is one page of address space. It is vacant (no frame), holds the frame of a victim, or belongs to the thread that took it.

use std::collections::VecDeque;

use crate::store::PageId;

#[derive(Debug, Clone, Copy)]
struct SlotUse {
    page: PageId,
    /// Number of victims that were in it, so that [`Victims::victims`] may keep stale entries.
    turn: u32,
    is_victim: bool,
}

/// Vacant slots, and slots with victims. Never allocates after [`new`](Self::new).
#[derive(Debug)]
pub(crate) struct Victims {
    slots: Box<[SlotUse]>,
    vacant: VecDeque<u32>,
    /// Slot and turn of each victim, oldest first.
    victims: VecDeque<(u32, u32)>,
    victim_count: usize,
}

impl Victims {
    pub(crate) fn new(count: usize) -> Self {
        let slot = SlotUse { page: PageId::default(), turn: 0, is_victim: false };
        Self {
            slots: vec![slot; count].into(),
            vacant: (0..count as u32).collect(),
            victims: VecDeque::with_capacity(2 * count),
            victim_count: 0,
        }
    }

    /// Number of slots without a frame.
    pub(crate) fn vacant(&self) -> usize {
        self.vacant.len()
    }

    /// Number of slots with a victim.
    pub(crate) fn count(&self) -> usize {
        self.victim_count
    }

    pub(crate) fn take_vacant(&mut self) -> Option<u32> {
        self.vacant.pop_front()
    }

    /// Returns a taken slot, without a frame.
    pub(crate) fn put_vacant(&mut self, slot: u32) {
        self.vacant.push_back(slot);
    }

    /// Returns a taken slot, with a victim.
    pub(crate) fn put_victim(&mut self, slot: u32, page: PageId) {
        if self.victims.len() == self.victims.capacity() {
            let slots = &self.slots;
            self.victims.retain(|&(slot, turn)| {
                let slot = &slots[slot as usize];
                slot.is_victim && slot.turn == turn
            });
        }
        let entry = &mut self.slots[slot as usize];
        entry.turn = entry.turn.wrapping_add(1);
        entry.page = page;
        entry.is_victim = true;
        self.victims.push_back((slot, entry.turn));
        self.victim_count += 1;
    }

    /// Takes the slot of this victim.
    pub(crate) fn take_victim(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.is_victim);
        entry.is_victim = false;
        self.victim_count -= 1;
    }

    /// Takes the slot of any victim of a region.
    pub(crate) fn take_victim_of(&mut self, region: u32) -> Option<u32> {
        let is_of = |slot: &SlotUse| slot.is_victim && slot.page.region == region;
        let slot = self.slots.iter().position(is_of)? as u32;
        self.take_victim(slot);
        Some(slot)
    }

    pub(crate) fn victim_pages(&self) -> impl Iterator<Item = PageId> {
        let victims = self.slots.iter().filter(|slot| slot.is_victim);
        victims.map(|slot| slot.page)
    }

    /// Takes the slot of the oldest victim.
    pub(crate) fn take_oldest(&mut self) -> Option<(u32, PageId)> {
        while let Some((slot, turn)) = self.victims.pop_front() {
            let entry = self.slots[slot as usize];
            if entry.is_victim && entry.turn == turn {
                self.take_victim(slot);
                return Some((slot, entry.page));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(page: u64) -> PageId {
        PageId { region: 0, page }
    }

    #[test]
    fn the_oldest_victim_goes_first_and_a_rescued_one_is_passed_over() {
        let mut slots = Victims::new(3);
        for page in 0..3 {
            let slot = slots.take_vacant().unwrap();
            slots.put_victim(slot, id(page));
        }
        slots.take_victim(0);
        slots.put_vacant(0);
        assert_eq!(slots.take_oldest(), Some((1, id(1))));
        slots.put_vacant(1);
        let slot = slots.take_vacant().unwrap();
        slots.put_victim(slot, id(7));
        assert_eq!(slots.take_oldest(), Some((2, id(2))));
        assert_eq!(slots.take_oldest(), Some((0, id(7))));
        assert_eq!(slots.take_oldest(), None);
        assert_eq!((slots.vacant(), slots.count()), (1, 0));
    }

    #[test]
    fn victims_that_come_and_go_never_let_the_queue_grow() {
        let mut slots = Victims::new(4);
        let capacity = slots.victims.capacity();
        for page in 0..1000 {
            let slot = slots.take_vacant().unwrap();
            slots.put_victim(slot, id(page));
            if page != 1 {
                slots.take_victim(slot);
                slots.put_vacant(slot);
            }
        }
        assert_eq!(slots.victims.capacity(), capacity);
        assert_eq!(slots.take_oldest().unwrap().1, id(1));
    }
}
