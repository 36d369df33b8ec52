//! The pages that this rank manages: which rank is the home of each, and who knows that.
//!
//! The first rank that asks becomes the home, unless one was given with the allocation. The home of a page moves only while nobody
//! knows it: the manager has each rank that knows it forget it, which each does once it has nothing under way there. Then the home to be
//! fetches the page from the former one, and the manager answers those that have asked meanwhile. So no fetch and no diff ever goes to a
//! rank that is not the home.
//!
//! A home is *alone* while no other rank knows it. It then writes without notices. When another rank asks, the manager has the home
//! write-protect the page before it answers. A page becomes alone again by a move to its own home.
//!
//! A word a page, zero at the start. Low to high: 1 bit allocated, 1 bit placed, 1 bit moving, 1 bit alone, 12 bits answers awaited, 16 bits
//! home or home to be. Two sets of ranks: those that were told the home or have to forget it, and those that wait for an answer.

use crate::ranks::RankSets;
use crate::{Rank, Violation, tables};
use alloc::vec::Vec;

const ALLOCATED: u32 = 1;
const PLACED: u32 = 2;
const MOVING: u32 = 4;
const ALONE: u32 = 8;
const AWAITED_SHIFT: u32 = 4;
const AWAITED_MASK: u32 = 0xfff << AWAITED_SHIFT;
const HOME_SHIFT: u32 = 16;

#[derive(Debug)]
pub(super) struct Homes {
    words: Vec<u32>,
    /// Former home of each page that moves; its successor is in the word.
    former: Vec<Rank>,
    told: RankSets,
    waiting: RankSets,
}

/// What to tell a rank that asks for a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing is allocated there.
    Refused,
    Home(Rank),
    /// The home moves; the answer follows.
    Later,
    /// The home is alone, and must be told; the answer follows.
    Alone(Rank),
}

impl Homes {
    /// Nothing is allocated; `None` if the machine refuses memory.
    pub(super) fn new(rows: u32, ranks: u16) -> Option<Self> {
        let count = usize::try_from(rows).ok()?;
        Some(Homes {
            words: tables::zeroes(count)?,
            former: tables::zeroes(count)?,
            told: RankSets::new(count, ranks)?,
            waiting: RankSets::new(count, ranks)?,
        })
    }

    fn home(&self, row: usize) -> Rank {
        (self.words[row] >> HOME_SHIFT) as Rank
    }

    fn set_home(&mut self, row: usize, home: Rank) {
        self.words[row] = self.words[row] & 0xffff | u32::from(home) << HOME_SHIFT;
    }

    fn is(&self, row: usize, flag: u32) -> bool {
        self.words[row] & flag != 0
    }

    /// Enters an allocated page, whose home may be given. A page that has a home keeps it.
    pub(super) fn allocate(&mut self, row: u32, home: Option<Rank>) {
        let row = row as usize;
        self.words[row] |= ALLOCATED;
        if let Some(home) = home
            && !self.is(row, PLACED)
        {
            self.words[row] |= PLACED;
            self.set_home(row, home);
            self.told.insert(row, home);
        }
    }

    /// A rank asks for the home.
    pub(super) fn ask(&mut self, row: u32, by: Rank) -> Result<Answer, Violation> {
        let row = row as usize;
        if !self.is(row, ALLOCATED) {
            return Ok(Answer::Refused);
        }
        if self.is(row, MOVING) {
            return if self.waiting.insert(row, by) { Ok(Answer::Later) } else { Err(Violation::Repeated) };
        }
        if self.told.contains(row, by) {
            return Err(Violation::Repeated);
        }
        if self.is(row, ALONE) {
            let home = self.home(row);
            self.waiting.insert(row, by);
            self.close(row, home);
            return Ok(Answer::Alone(home));
        }
        self.told.insert(row, by);
        if !self.is(row, PLACED) {
            self.words[row] |= PLACED | ALONE;
            self.set_home(row, by);
        }
        Ok(Answer::Home(self.home(row)))
    }

    /// From now on all that were told must forget the home before `to` is the next.
    fn close(&mut self, row: usize, to: Rank) {
        let awaited = u32::from(self.told.count(row));
        self.words[row] = self.words[row] & !(AWAITED_MASK | ALONE) | MOVING | awaited << AWAITED_SHIFT;
        self.former[row] = self.home(row);
        self.set_home(row, to);
    }

    /// The home wants another rank to be the home, or to be alone. False: it moves already, is alone, or that rank has claimed to write a
    /// page that it never had.
    pub(super) fn begin_move(&mut self, row: u32, from: Rank, to: Rank) -> Result<bool, Violation> {
        let row = row as usize;
        if self.is(row, MOVING | ALONE) {
            return Ok(false);
        }
        if !self.is(row, PLACED) || self.home(row) != from {
            return Err(Violation::NotHome);
        }
        if !self.told.contains(row, to) {
            return Ok(false);
        }
        if from == to {
            // It stays the home, and has nothing to forget.
            self.told.remove(row, from);
        }
        self.close(row, to);
        Ok(true)
    }

    /// Ranks that must forget the home, or know it.
    pub(super) fn told(&self, row: u32) -> impl Iterator<Item = Rank> + '_ {
        self.told.members(row as usize)
    }

    /// Whether that rank must forget the home, or knows it.
    pub(super) fn is_told(&self, row: u32, rank: Rank) -> bool {
        self.told.contains(row as usize, rank)
    }

    /// A rank has forgotten the home, or a home that was alone is so no longer.
    pub(super) fn closed(&mut self, row: u32, by: Rank) -> Result<(), Violation> {
        let row = row as usize;
        if !self.is(row, MOVING) || !self.told.contains(row, by) {
            return Err(Violation::Unasked);
        }
        self.told.remove(row, by);
        self.words[row] -= 1 << AWAITED_SHIFT;
        Ok(())
    }

    /// The home to be and the former one, if nobody is left that must forget.
    pub(super) fn all_closed(&self, row: u32) -> Option<(Rank, Rank)> {
        let row = row as usize;
        let is_closed = self.is(row, MOVING) && self.words[row] & AWAITED_MASK == 0;
        is_closed.then(|| (self.home(row), self.former[row]))
    }

    /// The home to be has the page. Afterwards [`answered`](Self::answered) gives those that wait. Whether none does: it is alone.
    pub(super) fn taken(&mut self, row: u32, by: Rank) -> Result<bool, Violation> {
        let row = row as usize;
        if !self.is(row, MOVING) || self.words[row] & AWAITED_MASK != 0 || self.home(row) != by {
            return Err(Violation::Unasked);
        }
        self.words[row] &= !MOVING;
        // It knows by itself, and has no need to be told.
        self.told.insert(row, by);
        self.waiting.remove(row, by);
        let is_alone = self.waiting.count(row) == 0;
        self.words[row] |= if is_alone { ALONE } else { 0 };
        Ok(is_alone)
    }

    /// The next rank that waits for the home, and the home.
    pub(super) fn answered(&mut self, row: u32) -> Option<(Rank, Rank)> {
        let row = row as usize;
        let next = self.waiting.members(row).next()?;
        self.waiting.remove(row, next);
        self.told.insert(row, next);
        Some((next, self.home(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_ask_is_the_home_and_it_moves_when_all_have_forgotten_it() {
        let mut homes = Homes::new(2, 5).unwrap();
        assert_eq!(homes.ask(1, 3), Ok(Answer::Refused));
        homes.allocate(1, None);
        assert_eq!(homes.ask(1, 3), Ok(Answer::Home(3)));
        assert_eq!(homes.ask(1, 3), Err(Violation::Repeated));
        assert_eq!(homes.ask(1, 0), Ok(Answer::Alone(3)));
        assert_eq!(homes.closed(1, 3), Ok(()));
        assert_eq!(homes.taken(1, 3), Ok(false));
        assert_eq!(homes.answered(1), Some((0, 3)));
        assert_eq!(homes.begin_move(1, 0, 3), Err(Violation::NotHome));
        assert_eq!(homes.begin_move(1, 3, 4), Ok(false), "it never had the page");
        assert_eq!(homes.begin_move(1, 3, 0), Ok(true));
        assert_eq!(homes.begin_move(1, 3, 0), Ok(false));
        assert_eq!(homes.ask(1, 2), Ok(Answer::Later));
        assert_eq!(homes.closed(1, 2), Err(Violation::Unasked));
        assert_eq!(homes.closed(1, 3), Ok(()));
        assert_eq!((homes.all_closed(1), homes.ask(1, 3)), (None, Ok(Answer::Later)));
        assert_eq!(homes.taken(1, 0), Err(Violation::Unasked));
        assert_eq!((homes.closed(1, 0), homes.all_closed(1)), (Ok(()), Some((0, 3))));
        assert_eq!(homes.taken(1, 3), Err(Violation::Unasked));
        assert_eq!(homes.taken(1, 0), Ok(false));
        assert_eq!(homes.answered(1), Some((2, 0)));
        assert_eq!(homes.answered(1), Some((3, 0)));
        assert_eq!(homes.answered(1), None);
        assert!(homes.told(1).eq([0, 2, 3]));
    }

    #[test]
    fn a_home_is_alone_again_when_all_others_have_forgotten_it_and_none_asks_meanwhile() {
        for asks in [false, true] {
            let mut homes = Homes::new(1, 5).unwrap();
            homes.allocate(0, Some(3));
            assert_eq!((homes.ask(0, 1), homes.ask(0, 2)), (Ok(Answer::Home(3)), Ok(Answer::Home(3))));
            assert_eq!(homes.begin_move(0, 3, 3), Ok(true));
            assert!(homes.told(0).eq([1, 2]));
            assert_eq!(homes.closed(0, 3), Err(Violation::Unasked), "it stays the home");
            assert_eq!((homes.closed(0, 1), homes.all_closed(0)), (Ok(()), None));
            if asks {
                assert_eq!(homes.ask(0, 1), Ok(Answer::Later));
            }
            assert_eq!((homes.closed(0, 2), homes.all_closed(0)), (Ok(()), Some((3, 3))));
            assert_eq!(homes.taken(0, 3), Ok(!asks));
            let after = if asks { Ok(Answer::Home(3)) } else { Ok(Answer::Alone(3)) };
            assert_eq!((homes.answered(0), homes.ask(0, 4)), (asks.then_some((1, 3)), after));
        }
    }

    #[test]
    fn a_home_that_was_given_stays_and_one_that_is_there_is_not_replaced() {
        let mut homes = Homes::new(1, 4).unwrap();
        homes.allocate(0, Some(2));
        homes.allocate(0, Some(1));
        assert_eq!(homes.ask(0, 3), Ok(Answer::Home(2)));
    }
}
