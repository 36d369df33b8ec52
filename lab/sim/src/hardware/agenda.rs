//! What happens when: events in order of time, and of their entry where times are equal.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug)]
struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    // The heap gives its greatest: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

#[derive(Debug)]
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Entry<E>>,
    next: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::with_capacity(1024), next: 0 }
    }

    /// Enters an event. It comes after those of the same time that were entered before.
    #[inline]
    pub(crate) fn enter(&mut self, at_ns: u64, event: E) {
        let number = self.next;
        self.next += 1;
        self.heap.push(Entry { at_ns, number, event });
    }

    /// Takes the next event out, with its time.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at_ns, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_entry() {
        let mut agenda = Agenda::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            agenda.enter(at, event);
        }
        let order: String = std::iter::from_fn(|| agenda.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }
}
