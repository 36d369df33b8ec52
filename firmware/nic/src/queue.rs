//! A queue of packets in reused slots: a packet is built where it will wait, and a short one copies only its own bytes.

use alloc::vec::Vec;

use crate::transmit::{Source, Transmit};

/// Packets in order. Grows when it is full; callers of `push` must bound it.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Slots: none before the first use, then a power of two. `length` are in use, from `head` on and around the end.
    places: Vec<Transmit>,
    /// Number of slots on first use.
    first: usize,
    head: usize,
    length: usize,
}

impl Queue {
    /// An empty queue, which allocates `places` slots, a power of two, on first use.
    pub(crate) const fn new(places: usize) -> Self {
        debug_assert!(places.is_power_of_two());
        Self { places: Vec::new(), first: places, head: 0, length: 0 }
    }

    /// Allocates its slots now.
    pub(crate) fn reserve(&mut self) {
        if self.places.is_empty() {
            self.grow();
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    fn place(&self, at: usize) -> usize {
        (self.head + at) & (self.places.len() - 1)
    }

    /// Appends a packet and returns its slot. The caller fills all of it but `work`, which is [`crate::transmit::Work::None`].
    #[inline]
    pub(crate) fn push(&mut self) -> &mut Transmit {
        if self.length == self.places.len() {
            self.grow();
        }
        let place = self.place(self.length);
        self.length += 1;
        let transmit = &mut self.places[place];
        transmit.set_work(crate::transmit::Work::None);
        transmit
    }

    /// The packet with `at` others before it.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Transmit> {
        if at >= self.length {
            return None;
        }
        let place = self.place(at);
        self.places.get_mut(place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Transmit> {
        (0..self.length).filter_map(|at| self.places.get(self.place(at)))
    }

    /// Removes the front packet; its slot stays readable until the next `push`.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&Transmit> {
        if self.length == 0 {
            return None;
        }
        let head = self.head;
        self.head = self.place(1);
        self.length -= 1;
        let transmit = &mut self.places[head];
        if let Source::Message(_) = transmit.source {
            // Frees its memory now, not when the slot is reused.
            transmit.source = Source::EMPTY;
        }
        Some(transmit)
    }

    /// Removes the packets from number `from` on for which `keep` is false; it may change those that stay.
    pub(crate) fn retain_from(&mut self, from: usize, mut keep: impl FnMut(&mut Transmit) -> bool) {
        let first = from.min(self.length);
        let mut kept = first;
        for at in first..self.length {
            let place = self.place(at);
            if keep(&mut self.places[place]) {
                let to = self.place(kept);
                self.places.swap(to, place);
                kept += 1;
            }
        }
        self.length = kept;
    }

    #[cold]
    fn grow(&mut self) {
        self.places.rotate_left(self.head);
        self.head = 0;
        let places = (self.places.len() * 2).max(self.first);
        self.places.resize_with(places, || Transmit::EMPTY);
    }

    /// Heap memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Transmit>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use mapwire_wire::NodeId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_queue_that_grows(steps in prop::collection::vec((0u8..8, any::<u16>()), 0..300)) {
            let mut queue = Queue::new(2);
            let mut oracle: VecDeque<u16> = VecDeque::new();
            for (step, value) in steps {
                match step {
                    0..4 => {
                        queue.push().to = NodeId(value);
                        oracle.push_back(value);
                    }
                    4..7 => {
                        prop_assert_eq!(queue.pop().map(|transmit| transmit.to.0), oracle.pop_front());
                    }
                    _ => {
                        let from = usize::from(value % 3);
                        queue.retain_from(from, |transmit| transmit.to.0 % 3 != 0);
                        let mut at = 0;
                        oracle.retain(|kept| {
                            at += 1;
                            at <= from || kept % 3 != 0
                        });
                    }
                }
                prop_assert_eq!(queue.len(), oracle.len());
                prop_assert_eq!(queue.get_mut(0).map(|transmit| transmit.to.0), oracle.front().copied());
            }
        }
    }

    #[test]
    fn it_takes_memory_when_it_is_first_used() {
        let mut queue = Queue::new(16);
        assert_eq!((queue.bytes(), queue.len()), (0, 0));
        assert!(queue.pop().is_none() && queue.get_mut(0).is_none() && queue.iter().next().is_none());
        queue.retain_from(0, |_| false);
        queue.push();
        assert_eq!(queue.bytes(), 16 * size_of::<Transmit>());
    }

    #[test]
    fn the_memory_of_a_long_message_is_given_back_when_it_is_out() {
        let mut queue = Queue::new(2);
        queue.push().source = Source::Message(alloc::vec![1; 500].into());
        assert!(matches!(queue.pop().unwrap().source, Source::Inline { length: 0, .. }));
    }
}
