//! Numbers of requests ahead of any access.
//!
//! They follow those of the threads, in groups of [`SET`]. A group is for the minipages that start on one page, in the views from a multiple
//! of [`SET`] on: so the numbers of minipages in consecutive views are consecutive, and one message can name all of them ([`Views`]).
//!
//! [`Views`]: crate::Views

use crate::Thread;
use crate::address::Key;
use crate::config::SET;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Ahead {
    /// The first number.
    first: Thread,
    groups: Vec<Group>,
    /// Number of outstanding requests.
    count: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Group {
    /// The page and the first view.
    key: Key,
    /// Number of outstanding requests; 0: the group is free.
    count: u16,
}

/// What a group is for, and the number of the minipage in it.
fn place(key: Key) -> (Key, u16) {
    let at = key.view % SET;
    (Key { view: key.view - at, ..key }, at)
}

impl Ahead {
    /// So many groups, all free, whose numbers begin with `first`.
    pub(super) fn new(first: Thread, groups: u16) -> Self {
        Ahead { first, groups: vec![Group::default(); usize::from(groups)], count: 0 }
    }

    /// The number that a request for the minipage has if there is one.
    pub(super) fn number(&self, key: Key) -> Option<Thread> {
        if self.count == 0 {
            return None;
        }
        let (wanted, at) = place(key);
        let group = self.groups.iter().position(|group| group.count > 0 && group.key == wanted)?;
        Some(self.first + SET * group as u16 + at)
    }

    /// Begins a request for a minipage that is not requested yet; `None` if no group is free.
    pub(super) fn begin(&mut self, key: Key) -> Option<Thread> {
        let number = match self.number(key) {
            Some(number) => number,
            None => {
                let free = self.groups.iter().position(|group| group.count == 0)?;
                let (key, at) = place(key);
                self.groups[free].key = key;
                self.first + SET * free as u16 + at
            }
        };
        self.count += 1;
        self.groups[usize::from((number - self.first) / SET)].count += 1;
        Some(number)
    }

    /// Ends an outstanding request, if it is one ahead of any access.
    pub(super) fn end(&mut self, number: Thread) {
        if let Some(at) = number.checked_sub(self.first) {
            self.count -= 1;
            self.groups[usize::from(at / SET)].count -= 1;
        }
    }
}
