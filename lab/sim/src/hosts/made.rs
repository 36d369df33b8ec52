//! Programs that are made up: the measurements of papers, and a program of which there is no trace.

use crate::hardware::Ps;

use super::program::{Deed, Program};

/// A memory for so many ranks that is large enough for what is made up here.
fn empty(ranks: u16) -> Program {
    Program { ranks, pages: 1 << 14, views: 32, participants: 1, ..Program::default() }
}

/// Rank 0 creates `count` minipages of `bytes` bytes, and rank 1 loads from one after the other (Millipage Figure 3). It computes for
/// up to `think_ps` before each: times that are spread evenly.
pub fn reads(ranks: u16, count: u32, bytes: u64, think_ps: Ps) -> Program {
    let mut program = empty(ranks);
    let minipages = program.allocate(0, count, bytes);
    program.add_to_all(Deed::Barrier(0));
    for minipage in minipages {
        // Multiples of the golden ratio, less whole numbers.
        let share = u64::from(minipage) * 618_034 % 1_000_000;
        program.add(1, Deed::Compute(think_ps / 1_000_000 * share));
        program.add(1, Deed::Touch { minipage, writes: false });
    }
    program
}

/// Rank 0 creates `count` minipages of `bytes` bytes, `copies` others load from them, and the last rank stores to one after the other.
pub fn writes(ranks: u16, count: u32, bytes: u64, copies: u16) -> Program {
    let mut program = empty(ranks);
    let minipages = program.allocate(0, count, bytes);
    program.add_to_all(Deed::Barrier(0));
    let touch = |minipage, writes| Deed::Touch { minipage, writes };
    for minipage in minipages.clone() {
        for rank in 1..=copies.min(ranks - 2) {
            program.add(rank, touch(minipage, false));
        }
    }
    program.add_to_all(Deed::Barrier(0));
    for minipage in minipages {
        program.add(ranks - 1, touch(minipage, true));
    }
    program
}

/// All ranks pass a barrier `count` times.
pub fn barriers(ranks: u16, count: u32) -> Program {
    let mut program = empty(ranks);
    for _ in 0..=count {
        program.add_to_all(Deed::Barrier(0));
    }
    program
}

/// Rank 1 takes and gives back locks one after the other, `count` of them, which rank 0 had before, or nobody.
pub fn locks(ranks: u16, count: u32, had_before: bool) -> Program {
    let mut program = empty(ranks);
    // Locks that neither of the two manages, where there are others.
    let managed_elsewhere = |lock: &u32| ranks < 3 || lock % u32::from(ranks) > 1;
    let locks: Vec<u32> = (0..4096).filter(managed_elsewhere).take(count as usize).collect();
    if had_before {
        for &lock in &locks {
            program.add(0, Deed::Lock(lock));
            program.add(0, Deed::Unlock(lock));
        }
    }
    program.add_to_all(Deed::Barrier(0));
    for &lock in &locks {
        program.add(1, Deed::Lock(lock));
        program.add(1, Deed::Unlock(lock));
    }
    program
}

/// The shape of a run of WATER, the simulation of molecules of SPLASH-2 in its n-squared form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Water {
    pub ranks: u16,
    /// Molecules, in as equal parts as possible.
    pub molecules: u32,
    /// Bytes of a molecule.
    pub bytes: u64,
    pub chunk: u32,
    pub steps: u32,
    /// Computing of all ranks together.
    pub computing_ps: Ps,
}

/// WATER, by its known pattern: in each step a rank moves its own molecules; after a barrier it computes the forces between each of them
/// and the half of all molecules that follow; then it adds what it found to each of these, under the lock of that minipage; after
/// another barrier it moves its own, and adds to a sum of all under a lock.
pub fn water(shape: &Water) -> Program {
    let mut program = empty(shape.ranks);
    let chunk = shape.chunk.max(1);
    let ranks = u32::from(shape.ranks);
    let chunks = shape.molecules.div_ceil(chunk);
    let owner = |minipage: u32| (u64::from(minipage) * u64::from(ranks) / u64::from(chunks)) as u16;
    for minipage in 0..chunks {
        let bytes = shape.bytes * u64::from(chunk);
        program.add(owner(minipage), Deed::Allocate { minipage, bytes });
    }
    program.minipages = chunks;
    let sum = program.allocate(0, 1, 64).start;
    program.add_to_all(Deed::Barrier(0));
    let touch = |minipage, writes| Deed::Touch { minipage, writes };
    // Nearly all computing is that of forces between pairs.
    let of_rank_ps = shape.computing_ps / u64::from(ranks) / u64::from(shape.steps.max(1));
    let (own_ps, pairs_ps) = (of_rank_ps / 20, of_rank_ps * 9 / 10);
    for _ in 0..shape.steps {
        for rank in 0..shape.ranks {
            let own: Vec<u32> = (0..chunks).filter(|at| owner(*at) == rank).collect();
            for &minipage in &own {
                program.add(rank, touch(minipage, true));
            }
            program.add(rank, Deed::Compute(own_ps));
            program.add(rank, Deed::Barrier(0));
            let first = own.first().copied().unwrap_or(0);
            let reach = (own.len() as u32 + chunks / 2).min(chunks);
            let others: Vec<u32> = (0..reach).map(|at| (first + at) % chunks).collect();
            let each_ps = pairs_ps / u64::from(reach.max(1));
            for &minipage in &others {
                program.add(rank, touch(minipage, false));
                program.add(rank, Deed::Compute(each_ps));
            }
            for &minipage in &others {
                program.add(rank, Deed::Lock(1 + minipage));
                program.add(rank, touch(minipage, true));
                program.add(rank, Deed::Unlock(1 + minipage));
            }
            program.add(rank, Deed::Barrier(0));
            for &minipage in &own {
                program.add(rank, touch(minipage, true));
            }
            program.add(rank, Deed::Compute(own_ps));
            program.add(rank, Deed::Lock(0));
            program.add(rank, touch(sum, true));
            program.add(rank, Deed::Unlock(0));
            program.add(rank, Deed::Barrier(0));
        }
    }
    program
}
