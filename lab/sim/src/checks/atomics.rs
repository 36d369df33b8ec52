//! Each addition to a word is done once, and its answer is what the word held before.

use std::collections::BTreeSet;

use super::{Violation, expect, violation};

/// Additions of 1 to a word that starts at 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adds {
    pub(crate) submitted: u64,
    pub(crate) applied: u64,
    answers: BTreeSet<u64>,
}

impl Adds {
    /// An importer has the answer to one.
    pub(crate) fn answer(&mut self, old: u64) -> Result<(), Violation> {
        if old >= self.applied {
            return Err(violation("atomics", format!("an addition gave {old}, and {} were done", self.applied)));
        }
        if self.answers.insert(old) { Ok(()) } else { Err(violation("atomics", format!("two additions gave {old}"))) }
    }

    /// The word at the end.
    pub(crate) fn finish(&self, word: u64) -> Result<(), Violation> {
        expect(word == self.applied && self.applied <= self.submitted, "atomics", || {
            format!("a word holds {word} after {} additions, of which {} were done", self.submitted, self.applied)
        })
    }
}
