//! Many cache shapes in one pass.
//!
//! With LRU, what a set of a cache with more ways holds includes what one with fewer ways holds, so one set of lanes serves
//! all associativities of a number of sets (a *level*). And since the sets of a level with more sets are parts of those of
//! one with fewer, a line that is the last used of its set in one level is so in all levels with more sets: it hits there and
//! changes nothing (Hill and Smith's all-associativity). So levels are run from few sets to many, block by block, and each
//! hands on only the lookups that can change the next ones.

use bytemuck::cast;
use wide::{CmpEq, i16x8, u64x2};

use super::keys::{self, CLASSES, FRESH, KINDS, KeyStream, MAX_SETS, class};
use super::lanes::{Four, Lanes, Sets, of_any_width};
use crate::counts::PathMisses;

const BLOCK: usize = 4096;
/// Blocks that are handed on whole after one of which nearly all was handed on.
const UNFILTERED_BLOCKS: u32 = 31;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shape {
    /// Sets, a power of two up to [`MAX_SETS`].
    pub sets: usize,
    /// Lines of a set: 1, 2, 4 or 8.
    pub ways: usize,
}

impl Shape {
    pub fn is_taken(self) -> bool {
        self.sets <= MAX_SETS && [1, 2, 4, 8].contains(&self.ways)
    }
}

/// Sets of one level, or of two levels of four ways that are looked up at once.
#[derive(Clone, Debug)]
enum Contents {
    Level(Sets),
    Pair(Vec<Four>, Vec<Four>),
}

/// One or two levels and their counts.
#[derive(Clone, Debug)]
struct Unit {
    contents: Contents,
    /// Sets of the level; of a pair those of the first, the other has `other_sets`.
    sets: usize,
    other_sets: usize,
    /// Blocks to come that are handed on whole.
    unfiltered: u32,
    /// Entries that were not handed on, by class.
    kept: [u64; CLASSES],
    /// Hits by class and by lane; a pair's second level has the upper four.
    hits: Hits,
}

#[derive(Clone, Debug)]
pub struct Levels {
    units: Vec<Unit>,
    all: [u64; CLASSES],
    buffers: [Vec<u64>; 2],
    /// Whether a line's first pages may be missing in the cache though the line is there, as where a line holds what is pinned.
    fresh_misses: bool,
}

impl Levels {
    /// Empty caches of the shapes, all of which [`Shape::is_taken`]. With `fresh_misses` a lookup of a page that was never
    /// looked up before misses even if its line is there; otherwise a line always holds all its pages.
    pub fn new(shapes: &[Shape], fresh_misses: bool) -> Self {
        let mut levels: Vec<Shape> = Vec::new();
        for shape in shapes {
            match levels.iter_mut().find(|level| level.sets == shape.sets) {
                Some(level) => level.ways = level.ways.max(shape.ways),
                None => levels.push(*shape),
            }
        }
        levels.sort_unstable();
        let mut units = Vec::new();
        let mut rest = levels.as_slice();
        while let Some((&first, others)) = rest.split_first() {
            rest = others;
            let unit = match (first.ways, others.first()) {
                (2..=4, Some(next)) if (2..=4).contains(&next.ways) => {
                    rest = &others[1..];
                    let [one, two] = [first.sets, next.sets].map(|sets| vec![Four::ZERO; sets]);
                    Unit::new(Contents::Pair(one, two), first.sets, next.sets)
                }
                _ => Unit::new(Contents::Level(Sets::new(first.sets, first.ways)), first.sets, 0),
            };
            units.push(unit);
        }
        Levels { units, all: [0; CLASSES], buffers: [vec![0; BLOCK], vec![0; BLOCK]], fresh_misses }
    }

    /// Looks up the stream, whose largest slot so far is `most_slot`.
    pub fn run(&mut self, stream: &KeyStream, most_slot: u32) {
        for unit in &mut self.units {
            if let Contents::Level(sets) = &mut unit.contents {
                sets.widen(most_slot);
            }
        }
        for (all, here) in self.all.iter_mut().zip(stream.of_class) {
            *all += here;
        }
        let classed = stream.of_class[1..].iter().any(|count| *count > 0);
        for block in stream.keys.chunks(BLOCK) {
            if classed {
                self.run_block::<true>(block);
            } else {
                self.run_block::<false>(block);
            }
        }
    }

    fn run_block<const CLASSED: bool>(&mut self, block: &[u64]) {
        let [from, to] = &mut self.buffers;
        let Some((last, units)) = self.units.split_last_mut() else { return };
        let mut in_buffer = None;
        for unit in units {
            let keys = in_buffer.map_or(block, |left: usize| &from[..left]);
            if unit.unfiltered > 0 {
                unit.unfiltered -= 1;
                unit.run::<CLASSED, false>(keys, to);
                continue;
            }
            let left = unit.run::<CLASSED, true>(keys, to);
            // To choose costs more than it saves.
            if keys.len() >= BLOCK / 8 && left > keys.len() / 8 * 7 {
                unit.unfiltered = UNFILTERED_BLOCKS;
            }
            std::mem::swap(from, to);
            in_buffer = Some(left);
        }
        let keys = in_buffer.map_or(block, |left| &from[..left]);
        last.run::<CLASSED, false>(keys, to);
    }

    /// Misses of the shape so far, by path, all in the fields of those that are not cold. `None` for a shape it was not made
    /// for.
    pub fn misses(&self, shape: Shape) -> Option<PathMisses> {
        let by_class = self.misses_by_class(shape)?;
        let (send, receive) = by_class.split_at(KINDS);
        Some(PathMisses { send_other: send.iter().sum(), receive_other: receive.iter().sum(), ..PathMisses::default() })
    }

    /// Misses of the shape so far by kind of lookup, both paths together. `None` for a shape it was not made for.
    pub fn misses_by_kind(&self, shape: Shape) -> Option<[u64; KINDS]> {
        let by_class = self.misses_by_class(shape)?;
        Some(std::array::from_fn(|kind| by_class[kind] + by_class[KINDS + kind]))
    }

    fn misses_by_class(&self, shape: Shape) -> Option<[u64; CLASSES]> {
        let at = self.place(shape)?;
        let (before, unit) = (&self.units[..at], &self.units[at]);
        let from = if unit.sets == shape.sets { 0 } else { 4 };
        Some(std::array::from_fn(|class| {
            let all = self.all[class];
            if self.fresh_misses && class % KINDS == FRESH {
                return all;
            }
            // What was not handed on hits.
            let kept: u64 = before.iter().map(|unit| unit.kept[class]).sum();
            let lanes = &unit.hits[class][from..from + shape.ways];
            all - kept - lanes.iter().sum::<u64>()
        }))
    }

    fn place(&self, shape: Shape) -> Option<usize> {
        let has = |unit: &Unit| unit.sets == shape.sets || unit.other_sets == shape.sets;
        self.units.iter().position(has)
    }

    /// Lines in the cache of the shape now. `None` for a shape it was not made for.
    pub fn resident(&self, shape: Shape) -> Option<u64> {
        let unit = &self.units[self.place(shape)?];
        Some(match &unit.contents {
            Contents::Level(sets) => of_any_width!(sets, sets => resident(sets, shape.ways)),
            Contents::Pair(first, _) if unit.sets == shape.sets => resident(first, shape.ways),
            Contents::Pair(_, second) => resident(second, shape.ways),
        })
    }
}

fn resident<L: Lanes>(sets: &[L], ways: usize) -> u64 {
    let lines = |set: &L| (0..ways).filter(|way| set.lane(*way) != 0).count() as u64;
    sets.iter().map(lines).sum()
}

/// Writes the keys that are not `last_used` behind those that are there.
#[inline(always)]
fn hand_on<const FILTER: bool>(out: &mut [u64], left: &mut usize, key: u64, last_used: bool) {
    if FILTER {
        out[*left] = key;
        *left += usize::from(!last_used);
    }
}

impl Unit {
    fn new(contents: Contents, sets: usize, other_sets: usize) -> Self {
        Unit { contents, sets, other_sets, unfiltered: 0, kept: [0; CLASSES], hits: [[0; 8]; CLASSES] }
    }

    /// Looks up keys. With `FILTER`, writes those that were not the last used of their set (the set of the level with more
    /// sets, of a pair) to `out` and returns how many. Without `CLASSED` every key is of class 0.
    fn run<const CLASSED: bool, const FILTER: bool>(&mut self, keys: &[u64], out: &mut [u64]) -> usize {
        // A key that was the last used of its set was in this lane.
        let first_lane = if self.other_sets == 0 { 0 } else { 4 };
        let before = self.hits.each_ref().map(|lanes| lanes[first_lane]);
        let hits = &mut self.hits;
        let left = match &mut self.contents {
            Contents::Level(sets) => of_any_width!(sets, sets => run::<_, CLASSED, FILTER>(sets, keys, out, hits)),
            Contents::Pair(first, second) => run_pair::<CLASSED, FILTER>(first, second, keys, out, hits),
        };
        if FILTER {
            for (kept, (lanes, before)) in self.kept.iter_mut().zip(self.hits.iter().zip(before)) {
                *kept += lanes[first_lane] - before;
            }
        }
        left
    }
}

/// Sums that are kept: of each class two that take turns, as a sum waits for the one before it to be stored.
const SUMS: usize = 2 * CLASSES;

#[inline(always)]
fn sum_of<const CLASSED: bool>(at: usize, key: u64) -> usize {
    if CLASSED { (class(key) + at % 2 * CLASSES) % SUMS } else { 0 }
}

/// The sums of each class that occurs.
fn by_class<T: Copy, const CLASSED: bool>(sums: [T; SUMS]) -> impl Iterator<Item = (usize, T)> {
    let sums = sums.into_iter().enumerate().map(|(at, sum)| (at % CLASSES, sum));
    sums.take(if CLASSED { SUMS } else { 1 })
}

#[inline(always)]
fn slot(key: u64) -> u16 {
    keys::slot(key as u32)
}

type Hits = [[u64; 8]; CLASSES];

fn run<L: Lanes, const CLASSED: bool, const FILTER: bool>(
    sets: &mut [L],
    keys: &[u64],
    out: &mut [u64],
    hits: &mut Hits,
) -> usize {
    let mask = sets.len() - 1;
    let mut left = 0;
    for part in keys.chunks(L::MOST.min(BLOCK)) {
        let mut sums = [L::ZERO; SUMS];
        for (at, &key) in part.iter().enumerate() {
            let set = &mut sets[key as usize & mask];
            let last_used = set.lane(0) == slot(key);
            let (used, found) = set.used(slot(key));
            *set = used;
            let sum = &mut sums[sum_of::<CLASSED>(at, key)];
            *sum = sum.plus(found);
            hand_on::<FILTER>(out, &mut left, key, last_used);
        }
        for (class, sum) in by_class::<_, CLASSED>(sums) {
            for (lane, count) in hits[class][..L::LANES].iter_mut().enumerate() {
                *count += u64::from(sum.lane(lane));
            }
        }
    }
    left
}

fn run_pair<const CLASSED: bool, const FILTER: bool>(
    first: &mut [Four],
    second: &mut [Four],
    keys: &[u64],
    out: &mut [u64],
    hits: &mut Hits,
) -> usize {
    let (first_mask, second_mask) = (first.len() - 1, second.len() - 1);
    let mut left = 0;
    let mut sums = [i16x8::ZERO; SUMS];
    for (at, &key) in keys.iter().enumerate() {
        let slot = slot(key);
        let (one, two) = (&mut first[key as usize & first_mask].0, &mut second[key as usize & second_mask].0);
        let last_used = *two as u16 == slot;
        let sets = u64x2::new([*one, *two]);
        // As `Four::used`, except that the mark fills its lane.
        let marks = cast::<u64x2, i16x8>(sets).cmp_eq(i16x8::splat(slot as i16));
        let in_words: u64x2 = cast(marks);
        let moved = in_words | (in_words + u64x2::splat(u64::MAX));
        let shifted = (sets << 16_u32) | u64x2::splat(u64::from(slot));
        let used = (sets ^ ((sets ^ shifted) & moved)).to_array();
        (*one, *two) = (used[0], used[1]);
        // A mark is -1.
        let sum = &mut sums[sum_of::<CLASSED>(at, key)];
        *sum -= marks;
        hand_on::<FILTER>(out, &mut left, key, last_used);
    }
    for (class, sum) in by_class::<_, CLASSED>(sums) {
        for (count, lane) in hits[class].iter_mut().zip(sum.to_array()) {
            *count += u64::from(lane as u16);
        }
    }
    left
}
