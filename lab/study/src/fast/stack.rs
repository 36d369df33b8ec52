//! Fully associative LRU caches of several sizes at once: what a line's reuse is far enough apart to miss.
//!
//! Each lookup takes the next place in a queue; a place is live while it is its line's latest. A line's stack distance is the
//! live places behind its own. Only the boundary of each size is kept, the oldest place that a cache of that size still holds:
//! a lookup of a line with an older place misses, and the boundary moves up to the next live place. So a lookup costs as many
//! steps as there are sizes that it misses in, however far apart (after Kim, Hill and Wood's stack with region markers, here
//! without the list).

use crate::decode::PAGE_ID;

const WORD: usize = 64;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Boundary {
    lines: usize,
    /// The oldest live place within, once there are as many lines.
    oldest: usize,
    held: usize,
}

/// LRU caches without sets, all of the same lines.
///
/// ```
/// let mut stack = mapwire_study::fast::Stack::new(&[1, 2]);
/// stack.run(&[0, 1, 0, 2, 1], |_, _| ());
/// assert_eq!(stack.misses(1), Some(5));
/// assert_eq!(stack.misses(2), Some(4)); // the second 0 hits
/// ```
#[derive(Clone, Debug)]
pub struct Stack {
    boundaries: Vec<Boundary>,
    last: Vec<u32>,
    queue: Vec<u32>,
    /// Live places, and those from `end` on.
    live: Vec<u64>,
    end: usize,
    /// Lookups that hit in the size of that number and all larger ones, one more for those that hit in none.
    hits_from: Vec<u64>,
}

impl Stack {
    /// Empty caches of so many lines each.
    pub fn new(sizes: &[usize]) -> Self {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let largest = sizes.last().copied().unwrap_or(1);
        let places = (4 * largest).next_power_of_two().max(1 << 16);
        Stack {
            hits_from: vec![0; sizes.len() + 1],
            boundaries: sizes.into_iter().map(|lines| Boundary { lines, oldest: 0, held: 0 }).collect(),
            last: Vec::new(),
            queue: vec![0; places],
            live: vec![u64::MAX; places / WORD],
            end: 0,
        }
    }

    /// Looks lines up; of each number the bits of a page's number count. Tells `each` the place of each lookup, and in how many
    /// of the sizes, smallest first, it misses.
    pub fn run(&mut self, lines: &[u32], mut each: impl FnMut(usize, usize)) {
        let most = lines.iter().map(|line| line & PAGE_ID).max();
        let needed = most.map_or(0, |most| most as usize + 1);
        if needed > self.last.len() {
            self.last.resize(needed, NONE);
        }
        let mut done = 0;
        while done < lines.len() {
            if self.end == self.queue.len() {
                self.compact();
            }
            let room = (lines.len() - done).min(self.queue.len() - self.end);
            let part = &lines[done..done + room];
            self.run_part(part, |at, missed| each(done + at, missed));
            done += room;
        }
    }

    /// Looks up lines for which there are places.
    #[inline(always)]
    fn run_part(&mut self, lines: &[u32], mut each: impl FnMut(usize, usize)) {
        // What is not behind `self` stays in registers.
        let (last, queue, live) = (&mut self.last[..], &mut self.queue[..], &mut self.live[..]);
        let boundaries = &mut self.boundaries[..];
        let mut end = self.end;
        for (at, &line) in lines.iter().enumerate() {
            let line = line & PAGE_ID;
            let place = last[line as usize] as usize;
            let mut missed = 0;
            // If it was looked up just now, nothing changes.
            if place + 1 != end {
                queue[end] = line;
                last[line as usize] = end as u32;
                end += 1;
                if place == NONE as usize {
                    missed = first_lookup(boundaries, live);
                } else {
                    live[place / WORD] &= !(1 << (place % WORD));
                    for boundary in boundaries.iter_mut() {
                        if boundary.oldest < place {
                            break;
                        }
                        // The line itself was the oldest within, or is not within and pushes the oldest out.
                        missed += usize::from(boundary.oldest > place);
                        boundary.oldest = next_live(live, boundary.oldest + 1);
                    }
                }
            }
            self.hits_from[missed] += 1;
            each(at, missed);
        }
        self.end = end;
    }

    /// Moves the live places together. Lines that the largest cache does not hold lose theirs.
    #[cold]
    fn compact(&mut self) {
        let from = self.boundaries.last().map_or(0, |largest| largest.oldest);
        let mut moved = 0;
        let mut boundaries = self.boundaries.iter_mut().rev().peekable();
        for (at, mut word) in self.live.iter().copied().enumerate() {
            while word != 0 {
                let place = at * WORD + word.trailing_zeros() as usize;
                if place >= self.end {
                    break;
                }
                word &= word - 1;
                let line = self.queue[place];
                if place < from {
                    self.last[line as usize] = NONE;
                    continue;
                }
                while let Some(boundary) = boundaries.next_if(|boundary| boundary.oldest <= place) {
                    boundary.oldest = moved;
                }
                self.queue[moved] = line;
                self.last[line as usize] = moved as u32;
                moved += 1;
            }
        }
        self.live.fill(u64::MAX);
        self.end = moved;
    }

    /// Misses so far of the cache with so many lines; `None` if it is none of those.
    pub fn misses(&self, lines: usize) -> Option<u64> {
        Some(self.hits_from[self.rank(lines)? + 1..].iter().sum())
    }

    /// How many of the sizes are smaller than that one; `None` if it is none of them.
    pub fn rank(&self, lines: usize) -> Option<usize> {
        let of_size = |boundary: &Boundary| boundary.lines == lines;
        self.boundaries.iter().position(of_size)
    }
}

#[inline(never)]
fn first_lookup(boundaries: &mut [Boundary], live: &[u64]) -> usize {
    for boundary in &mut *boundaries {
        if boundary.held < boundary.lines {
            boundary.held += 1;
        } else {
            boundary.oldest = next_live(live, boundary.oldest + 1);
        }
    }
    boundaries.len()
}

/// The first live place from `from` on. There is one: the place taken last.
#[inline(always)]
fn next_live(live: &[u64], from: usize) -> usize {
    match live[from / WORD] >> (from % WORD) {
        0 => next_live_word(live, from / WORD + 1),
        here => from + here.trailing_zeros() as usize,
    }
}

#[cold]
fn next_live_word(live: &[u64], mut at: usize) -> usize {
    while live[at] == 0 {
        at += 1;
    }
    at * WORD + live[at].trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list, the line used last first.
    fn misses_of_a_list(size: usize, lines: &[u32]) -> u64 {
        let mut list: Vec<u32> = Vec::new();
        let mut misses = 0;
        for line in lines {
            match list.iter().position(|it| it == line) {
                Some(at) => drop(list.remove(at)),
                None => misses += 1,
            }
            list.insert(0, *line);
            list.truncate(size);
        }
        misses
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn every_size_misses_as_often_as_a_list_of_that_length(
            lines in prop::collection::vec(0_u32..40, 0..500),
            sizes in prop::collection::btree_set(1_usize..50, 1..6),
            pieces in 1_usize..7,
        ) {
            let sizes: Vec<_> = sizes.into_iter().collect();
            let mut stack = Stack::new(&sizes);
            for piece in lines.chunks(lines.len() / pieces + 1) {
                stack.run(piece, |_, _| ());
            }
            for size in sizes {
                prop_assert_eq!(stack.misses(size), Some(misses_of_a_list(size, &lines)), "{}", size);
            }
            prop_assert_eq!(stack.misses(99), None);
        }

        #[test]
        fn moving_the_live_places_together_changes_nothing(
            lines in prop::collection::vec(0_u32..40, 0..500),
            every in 1_usize..50,
        ) {
            let sizes = [2, 7, 20];
            let mut stack = Stack::new(&sizes);
            for piece in lines.chunks(every) {
                stack.run(piece, |_, _| ());
                stack.compact();
            }
            for size in sizes {
                prop_assert_eq!(stack.misses(size), Some(misses_of_a_list(size, &lines)), "{}", size);
            }
        }
    }
}
