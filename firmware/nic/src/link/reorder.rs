//! Keeps packets that came before their turn.

use alloc::collections::VecDeque;

use super::LINK_WINDOW;

/// Position of an arriving packet in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next in order: call [`super::Link::handle_taken`] once it is taken.
    Next,
    /// Early: [`super::Link::keep`] it.
    Early,
    /// A repetition.
    Repeated,
    /// Too far ahead to be kept.
    Beyond,
}

/// Early packets, at most [`LINK_WINDOW`] beyond the one that is due.
#[derive(Debug)]
pub(super) struct Reorder<T> {
    due: u32,
    /// Early packets by distance from `due`.
    early: VecDeque<Option<T>>,
}

impl<T> Reorder<T> {
    pub(super) const fn new(due: u32) -> Self {
        Self { due, early: VecDeque::new() }
    }

    pub(super) const fn due(&self) -> u32 {
        self.due
    }

    pub(super) fn arrival(&self, sequence: u32) -> Arrival {
        let ahead = sequence.wrapping_sub(self.due);
        if ahead >= LINK_WINDOW {
            return match ahead > u32::MAX / 2 {
                true => Arrival::Repeated,
                false => Arrival::Beyond,
            };
        }
        match self.early.get(ahead as usize) {
            Some(Some(_)) => Arrival::Repeated,
            _ if ahead == 0 => Arrival::Next,
            _ => Arrival::Early,
        }
    }

    /// The packet that is due has been taken.
    pub(super) fn handle_taken(&mut self) {
        self.early.pop_front();
        self.due = self.due.wrapping_add(1);
    }

    /// Keeps packet `sequence`, which must be [`Arrival::Early`].
    pub(super) fn keep(&mut self, sequence: u32, item: T) {
        let at = sequence.wrapping_sub(self.due).min(LINK_WINDOW - 1) as usize;
        while self.early.len() <= at {
            self.early.push_back(None);
        }
        self.early[at] = Some(item);
    }

    pub(super) fn forget_early(&mut self) {
        self.early.clear();
    }

    /// Heap memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.early.capacity() * size_of::<Option<T>>()
    }

    /// The next packet in order, if it arrived early.
    pub(super) fn poll(&mut self) -> Option<T> {
        let item = self.early.front_mut()?.take()?;
        self.handle_taken();
        Some(item)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.early.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_packet_comes_out_once_and_in_order_across_the_wrap(
            first in prop_oneof![Just(u32::MAX - 20), any::<u32>()],
            order in Just((0..50u32).collect::<Vec<_>>()).prop_shuffle(),
            again in prop::collection::vec(0usize..50, 50),
        ) {
            let mut reorder = Reorder::new(first);
            let mut out = Vec::new();
            for (at, number) in order.iter().enumerate() {
                for number in [*number, order[again[at] % (at + 1)]] {
                    let sequence = first.wrapping_add(number);
                    match reorder.arrival(sequence) {
                        Arrival::Next => {
                            reorder.handle_taken();
                            out.push(number);
                        }
                        Arrival::Early => reorder.keep(sequence, number),
                        Arrival::Repeated | Arrival::Beyond => {}
                    }
                    out.extend(core::iter::from_fn(|| reorder.poll()));
                }
            }
            prop_assert!(out.iter().copied().eq(0..50));
            prop_assert!(reorder.is_empty() && reorder.early.is_empty());
            prop_assert_eq!(reorder.arrival(first), Arrival::Repeated);
        }
    }

    #[test]
    fn nothing_is_kept_beyond_the_window() {
        let mut reorder = Reorder::new(7);
        assert_eq!(reorder.arrival(7 + LINK_WINDOW), Arrival::Beyond);
        assert_eq!(reorder.arrival(6 + LINK_WINDOW), Arrival::Early);
        reorder.keep(6 + LINK_WINDOW, ());
        assert_eq!(reorder.arrival(6 + LINK_WINDOW), Arrival::Repeated);
        assert_eq!(reorder.early.len(), LINK_WINDOW as usize);
    }
}
