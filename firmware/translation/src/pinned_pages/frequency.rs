//! Victims by number of uses since pinning: LFU and MFU.
//!
//! Pages with equal numbers of uses share a bucket, in the order of their last use; buckets are ordered by number of uses. A use moves a
//! page to the next bucket, so nothing is ever searched.

use super::{NIL, Node, Search, State};
use crate::page::Page;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    uses: u64,
    newest: u32,
    oldest: u32,
    /// The bucket of the next smaller number of uses.
    fewer: u32,
    /// The bucket of the next larger number of uses. In a free bucket, the next free one.
    more: u32,
    /// Pages of this bucket that a search has parked: they keep it alive.
    parked: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Frequency {
    buckets: Vec<Bucket>,
    /// First of the free buckets.
    spare: u32,
    fewest: u32,
    most: u32,
    /// The bucket of each pinned node.
    bucket_of: Vec<u32>,
    most_first: bool,
}

impl Frequency {
    /// Victims are the least often used, of these the least recently used.
    pub(super) fn least_first() -> Self {
        Frequency { buckets: Vec::new(), spare: NIL, fewest: NIL, most: NIL, bucket_of: Vec::new(), most_first: false }
    }

    /// Victims are the most often used, of these the least recently used.
    pub(super) fn most_first() -> Self {
        Frequency { most_first: true, ..Self::least_first() }
    }

    /// Adds a pinned page, for a use or ahead of it.
    pub(super) fn add(&mut self, cells: &mut [Node], at: usize, used: bool) {
        if self.bucket_of.len() < cells.len() {
            self.bucket_of.resize(cells.len(), NIL);
        }
        let unused = self.bucket_after(NIL, 0);
        let bucket = match used {
            true => self.bucket_after(unused, 1),
            false => unused,
        };
        self.link(cells, at, bucket);
        self.drop_if_empty(unused);
    }

    pub(super) fn remove(&mut self, cells: &mut [Node], at: usize) {
        let bucket = self.bucket_of[at];
        match cells[at].state {
            State::Parked => self.buckets[bucket as usize].parked -= 1,
            _ => self.unlink(cells, at, bucket),
        }
        self.drop_if_empty(bucket);
    }

    /// Counts one more use, if the page is pinned.
    pub(super) fn touch(&mut self, cells: &mut [Node], at: usize) {
        let bucket = match cells[at].state {
            State::Absent => return,
            _ => self.bucket_of[at],
        };
        let next = self.bucket_after(bucket, self.buckets[bucket as usize].uses + 1);
        match cells[at].state {
            State::Parked => self.buckets[bucket as usize].parked -= 1,
            _ => self.unlink(cells, at, bucket),
        }
        cells[at].state = State::Listed;
        self.link(cells, at, next);
        self.drop_if_empty(bucket);
    }

    /// Relists a parked page as the most recently used of its bucket.
    pub(super) fn take_back(&mut self, cells: &mut [Node], at: usize) {
        let bucket = self.bucket_of[at];
        self.buckets[bucket as usize].parked -= 1;
        self.link(cells, at, bucket);
    }

    pub(super) fn search(&mut self, search: &mut Search<'_, impl Fn(Page) -> bool>) {
        let mut bucket = if self.most_first { self.most } else { self.fewest };
        while search.missing > 0 && bucket != NIL {
            let mut at = self.buckets[bucket as usize].oldest;
            while search.missing > 0 && at != NIL {
                let newer = search.nodes.cells()[at as usize].newer;
                if search.visit(at as usize) {
                    self.unlink(search.nodes.cells_mut(), at as usize, bucket);
                    self.buckets[bucket as usize].parked += 1;
                }
                at = newer;
            }
            let Bucket { fewer, more, .. } = self.buckets[bucket as usize];
            bucket = if self.most_first { fewer } else { more };
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>() + self.bucket_of.capacity() * size_of::<u32>()
    }

    /// The bucket for `uses`, which is more than that of `before` and at most that of its successor.
    fn bucket_after(&mut self, before: u32, uses: u64) -> u32 {
        let behind = match before {
            NIL => self.fewest,
            before => self.buckets[before as usize].more,
        };
        if behind != NIL && self.buckets[behind as usize].uses == uses {
            return behind;
        }
        let fresh = Bucket { uses, newest: NIL, oldest: NIL, fewer: before, more: behind, parked: 0 };
        let bucket = match self.spare {
            NIL => {
                self.buckets.push(fresh);
                (self.buckets.len() - 1) as u32
            }
            spare => {
                self.spare = self.buckets[spare as usize].more;
                self.buckets[spare as usize] = fresh;
                spare
            }
        };
        match before {
            NIL => self.fewest = bucket,
            before => self.buckets[before as usize].more = bucket,
        }
        match behind {
            NIL => self.most = bucket,
            behind => self.buckets[behind as usize].fewer = bucket,
        }
        bucket
    }

    fn drop_if_empty(&mut self, bucket: u32) {
        let Bucket { oldest, fewer, more, parked, .. } = self.buckets[bucket as usize];
        if oldest != NIL || parked > 0 {
            return;
        }
        match fewer {
            NIL => self.fewest = more,
            fewer => self.buckets[fewer as usize].more = more,
        }
        match more {
            NIL => self.most = fewer,
            more => self.buckets[more as usize].fewer = fewer,
        }
        self.buckets[bucket as usize].more = self.spare;
        self.spare = bucket;
    }

    /// Makes the node the newest of the bucket.
    fn link(&mut self, cells: &mut [Node], at: usize, bucket: u32) {
        self.bucket_of[at] = bucket;
        let list = &mut self.buckets[bucket as usize];
        cells[at].older = list.newest;
        cells[at].newer = NIL;
        match list.newest {
            NIL => list.oldest = at as u32,
            newest => cells[newest as usize].newer = at as u32,
        }
        list.newest = at as u32;
    }

    fn unlink(&mut self, cells: &mut [Node], at: usize, bucket: u32) {
        let Node { newer, older, .. } = cells[at];
        let list = &mut self.buckets[bucket as usize];
        match newer {
            NIL => list.newest = older,
            newer => cells[newer as usize].older = older,
        }
        match older {
            NIL => list.oldest = newer,
            older => cells[older as usize].newer = newer,
        }
    }
}
