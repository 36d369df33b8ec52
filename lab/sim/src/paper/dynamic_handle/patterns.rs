//! What the paper's applications move, as one of its four nodes sees it: the pages that the node's NIC translates, in order.
//!
//! The paper's traces are not public, and it prints no problem sizes. These kernels have the structure of the SPLASH-2 programs on a
//! home-based shared memory (GeNIMA): a node fetches the pages that it reads and others have written, and sends its own writes to the
//! pages' homes. A node is one process of the NIC with two threads; memory has the same addresses everywhere.

use crate::Random;

/// The nodes of Table II.
const NODES: u64 = 4;

/// A page that the NIC translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) page: u64,
    /// Data comes into it; otherwise data is sent from it.
    pub(super) receives: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Application {
    pub(super) name: &'static str,
    /// The problem that stands for the paper's.
    pub(super) problem: &'static str,
    /// One after the other, of one node.
    pub(super) accesses: Vec<Access>,
    /// Computing time of one processor for the whole problem, in milliseconds.
    pub(super) computing_ms: u64,
}

/// The transfers of a node, as they are put together.
#[derive(Default)]
struct Transfers(Vec<Access>);

impl Transfers {
    /// A page comes in: fetched, or written by another node.
    fn comes(&mut self, page: u64) {
        self.0.push(Access { page, receives: true });
    }

    /// A page goes out: another node fetches it, or what was written there goes to its home.
    fn goes(&mut self, page: u64) {
        self.0.push(Access { page, receives: false });
    }
}

/// All of the paper's, in the order of its Figure 5: the problem, computing time in milliseconds, accesses.
pub(super) fn all(seed: u64) -> Vec<Application> {
    let of = |name, problem, computing_ms, accesses| Application { name, problem, accesses, computing_ms };
    // Rays and volumes: queues of tasks that all nodes touch again and again, and data that are fetched when a task comes to them.
    let (rays, volume) = (tasks(seed, 4096, 60_000, 97), tasks(seed.wrapping_add(1), 2048, 40_000, 97));
    vec![
        of("FFT", "4 M points, there and back", 14_000, fft()),
        of("Radix", "32 M keys, 8 bits a pass, 2 passes", 8_000, sort(seed, 256)),
        of("WaterNsquared", "4,096 molecules, 10 steps", 120_000, water_nsquared()),
        of("Raytrace", "scene of 16 MB", 60_000, rays),
        of("LUContiguous", "5,632 x 5,632, blocks of 32 x 32", 1_000_000, lu_contiguous()),
        of("Ocean", "25 grids of 1,026 x 1,026, 8 steps", 40_000, ocean()),
        of("Volrend", "volume of 8 MB", 30_000, volume),
        of("WaterSpatial", "24,576 molecules, 8 steps", 120_000, water_spatial()),
    ]
}

/// Six-step FFT and its inverse: six transposes between two matrices. A row of 2,048 complex numbers is 8 pages, of which each node
/// needs 2.
fn fft() -> Vec<Access> {
    const ROWS: u64 = 2048;
    const ROW_PAGES: u64 = 8;
    const MATRIX: u64 = ROWS * ROW_PAGES;
    let of_node = ROWS / NODES;
    let mut transfers = Transfers::default();
    for transpose in 0..6 {
        let from = transpose % 2 * MATRIX;
        // Each node begins with the rows of its neighbour.
        for partner in 1..NODES {
            for row in 0..of_node {
                for page in 0..ROW_PAGES / NODES {
                    transfers.comes(from + (partner * of_node + row) * ROW_PAGES + page);
                    let columns = (NODES - partner) * (ROW_PAGES / NODES);
                    transfers.goes(from + row * ROW_PAGES + columns + page);
                }
            }
        }
    }
    transfers.0
}

/// Two passes of a sort of 32 M keys into so many buckets, a power of two: each node writes its keys into its part of each bucket, wherever
/// that lies. A page is fetched when the first key is written to it, and what was written goes to the pages' homes at the end.
pub(super) fn sort(seed: u64, buckets: u64) -> Vec<Access> {
    const ARRAY: u64 = 64 << 10;
    let bucket_pages = (32 << 10) / buckets;
    // Keys are not spread quite evenly, so that buckets do not begin at powers of two.
    let apart = bucket_pages + 3;
    let part = bucket_pages / NODES;
    let at_home = buckets / NODES;
    let mut random = Random::new(seed);
    let mut transfers = Transfers::default();
    for pass in 0..2 {
        let page = |bucket: u64, node: u64, page: u64| pass * ARRAY + bucket * apart + node * part + page;
        for at in 0..part {
            // Keys fill the buckets at about the same pace, in no order; another node does the same with the buckets that are here.
            let others = shuffled(buckets - at_home, &mut random);
            for (bucket, other) in others.iter().zip(shuffled(3 * at_home, &mut random)) {
                transfers.comes(page(at_home + bucket, 0, at));
                transfers.goes(page(other % at_home, 1 + other / at_home, at));
            }
        }
        for bucket in 0..buckets - at_home {
            for at in 0..part {
                transfers.goes(page(at_home + bucket, 0, at));
                transfers.comes(page(bucket % at_home, 1 + bucket / at_home, at));
            }
        }
    }
    transfers.0
}

fn shuffled(count: u64, random: &mut Random) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count).collect();
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at as u64 + 1) as usize);
    }
    all
}

/// Forces between all pairs: in each step a node reads the molecules of half of the others, and adds to them.
fn water_nsquared() -> Vec<Access> {
    const PAGES: u64 = 680;
    let of_node = PAGES / NODES;
    let mut transfers = Transfers::default();
    for _ in 0..10 {
        for partner in 1..=NODES / 2 {
            for page in 0..of_node {
                transfers.comes(partner * of_node + page);
                transfers.goes(page);
            }
        }
        for partner in 1..=NODES / 2 {
            for page in 0..of_node {
                transfers.goes(partner * of_node + page);
                transfers.comes(page);
            }
        }
    }
    transfers.0
}

/// Transfers, of which so many percent are of queues and the others of short runs of read-only data.
fn tasks(seed: u64, data_pages: u64, count: usize, queue_percent: u64) -> Vec<Access> {
    const QUEUE_PAGES: u64 = 32;
    let mut random = Random::new(seed);
    let mut transfers = Transfers::default();
    let mut seen = vec![false; data_pages as usize];
    while transfers.0.len() < count {
        if random.chance(queue_percent) {
            let page = random.below(QUEUE_PAGES);
            transfers.comes(page);
            transfers.goes(page);
            continue;
        }
        let first = random.below(data_pages);
        for page in first..(first + 8).min(data_pages) {
            // A page that was fetched stays, as nobody writes it.
            if !std::mem::replace(&mut seen[page as usize], true) {
                transfers.comes(QUEUE_PAGES + page);
            } else if page % NODES == 0 {
                transfers.goes(QUEUE_PAGES + page);
            }
        }
    }
    transfers.0
}

/// LU of 176 x 176 blocks of 2 pages each, which processors own by turns, 2 x 4; a processor's blocks follow one another by columns.
fn lu_contiguous() -> Vec<Access> {
    const BLOCKS: u64 = 176;
    const BLOCK_PAGES: u64 = 2;
    let owner = |row: u64, column: u64| row % 2 * 4 + column % 4;
    let page = |row: u64, column: u64| {
        let of_owner = BLOCKS * BLOCKS / 8;
        let at = column / 4 * (BLOCKS / 2) + row / 2;
        (owner(row, column) * of_owner + at) * BLOCK_PAGES
    };
    let is_here = |row, column| owner(row, column) < 2;
    let mut transfers = Transfers::default();
    for step in 0..BLOCKS {
        // The blocks below and beside the diagonal, which the owners of the rest need.
        for at in step + 1..BLOCKS {
            for (row, column, is_needed) in [(at, step, at % 2 == 0), (step, at, at % 4 < 2)] {
                for offset in 0..BLOCK_PAGES {
                    match is_here(row, column) {
                        true => transfers.goes(page(row, column) + offset),
                        false if is_needed => transfers.comes(page(row, column) + offset),
                        false => {}
                    }
                }
            }
        }
    }
    transfers.0
}

/// Grids in four parts of rows: each node exchanges the rows at the borders of its part with the nodes above and below. A step does
/// that once for all grids, and relaxes 100 times on three of them. A row of a processor's half is a page.
fn ocean() -> Vec<Access> {
    const GRIDS: u64 = 25;
    const RELAXED: u64 = 3;
    const PART_PAGES: u64 = 2 * 257;
    let mut transfers = Transfers::default();
    for _ in 0..8 {
        let relaxations = (0..100 * RELAXED).map(|sweep| sweep % RELAXED);
        for grid in (0..GRIDS).chain(relaxations) {
            let part = |node: u64| (grid * NODES + node) * PART_PAGES;
            // Node 1, with the halves of two processors, between nodes 0 and 2.
            for half in [0, PART_PAGES / 2] {
                transfers.comes(part(0) + half + PART_PAGES / 2 - 1);
                transfers.goes(part(1) + half);
                transfers.goes(part(1) + half + PART_PAGES / 2 - 1);
                transfers.comes(part(2) + half);
            }
        }
    }
    transfers.0
}

/// Molecules in cells: in each step a node reads the cells at the borders of its neighbours' parts.
fn water_spatial() -> Vec<Access> {
    const PART_PAGES: u64 = 1024;
    const RUN: u64 = 8;
    let mut transfers = Transfers::default();
    for _ in 0..8 {
        for partner in 1..NODES {
            // A layer of cells: runs of pages with gaps between them.
            for run in 0..PART_PAGES / (4 * RUN) {
                for page in 0..RUN {
                    transfers.comes(partner * PART_PAGES + run * 4 * RUN + page);
                    transfers.goes(run * 4 * RUN + page + RUN * (partner - 1));
                }
            }
        }
    }
    transfers.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_receives_about_as_much_as_it_sends_and_the_seed_repeats_it() {
        for (one, again) in all(1).iter().zip(all(1)) {
            assert_eq!(one.accesses, again.accesses, "{}", one.name);
            let comes = one.accesses.iter().filter(|access| access.receives);
            let (comes, count) = (comes.count(), one.accesses.len());
            assert!(count > 5_000, "{}: {count}", one.name);
            assert!((count / 4..3 * count / 4).contains(&comes), "{}: {comes} of {count}", one.name);
        }
    }

    #[test]
    fn each_transpose_fetches_three_quarters_of_a_nodes_part() {
        let accesses = fft();
        assert_eq!(accesses.len(), 6 * 2 * 3 * 512 * 2);
    }
}
