//! How threads share slabs without waiting for each other.
//!
//! A slab has a bit for each block, set while the block is taken. One thread at a time *holds* a slab: it alone takes blocks from it, a word
//! of bits at a time. Anybody gives blocks back, by clearing bits. When the holder finds all blocks taken, it leaves the slab as *full*;
//! the first to give a block back to a full slab puts it on the list of its class, from which the next holder draws it.
//!
//! What two threads could both do is decided by one atomic operation on the slab's state. A thread that dies costs the slab it holds, and
//! the blocks that it was about to give back.
//!
//! **Reuse.** A thread that has given its last block back, or has left its slab as full, may be slow: by the time it changes the state, the
//! slab may be dissolved and its memory used anew. So the state lies in the unit's entry beside the class, never in the slab: a change
//! succeeds only where a slab of this class is, in this state. A full slab is nobody's, so it does no harm if that is another than before.
//!
//! The words are behind traits, so that models run this very code.

use super::units::slab_entry;

/// States of a slab. One thread takes blocks from it.
pub(super) const HELD: u32 = 1;
/// All blocks were taken when its holder left it.
pub(super) const FULL: u32 = 2;
/// On the list of its class.
pub(super) const LISTED: u32 = 3;

/// Steps of an operation that others can frustrate: then it does without.
const TRIES: usize = 256;

/// The words of a slab. All operations are sequentially consistent.
pub(super) trait SlabWords {
    /// Number of words of bits.
    fn words(&self) -> u32;
    /// The bits of a word that stand for blocks.
    fn all_bits(&self, word: u32) -> u64;
    fn class(&self) -> usize;
    /// The entry of the slab's first unit; outlives the slab.
    fn load_entry(&self) -> u32;
    /// Changes the entry, if it is `from`.
    fn change_entry(&self, from: u32, to: u32) -> bool;
    /// The bits of blocks that are taken.
    fn load_bits(&self, word: u32) -> u64;
    /// Sets all bits; returns those that were set before.
    fn set_bits(&self, word: u32) -> u64;
    /// Clears these bits; returns what was set before.
    fn clear_bits(&self, word: u32, bits: u64) -> u64;
}

/// Changes the slab's state. False: it is not `from`, or there is no such slab any more.
pub(super) fn change_state(slab: &impl SlabWords, from: u32, to: u32) -> bool {
    slab.change_entry(slab_entry(slab.class(), 0, from), slab_entry(slab.class(), 0, to))
}

/// Blocks for the holder: those of one word, from word `from` on in turn. `None`: all are taken.
pub(super) fn take(slab: &impl SlabWords, from: u32) -> Option<(u32, u64)> {
    let words = slab.words();
    (0..words).map(|nth| (from + nth) % words).find_map(|word| {
        let all = slab.all_bits(word);
        let is_taken = slab.load_bits(word) & all == all;
        let taken = if is_taken { 0 } else { !slab.set_bits(word) & all };
        (taken != 0).then_some((word, taken))
    })
}

/// The holder leaves a slab that has no block for it. False: there is one by now, and it holds the slab again.
pub(super) fn leave_full(slab: &impl SlabWords) -> bool {
    if !change_state(slab, HELD, FULL) {
        // Only another process's stores make it so.
        return true;
    }
    // Whoever gave a block back before it was full has not listed it.
    let has_room = (0..slab.words()).any(|word| slab.load_bits(word) & slab.all_bits(word) != slab.all_bits(word));
    !(has_room && change_state(slab, FULL, HELD))
}

/// What is to be done after blocks were given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// Nothing.
    Done,
    /// The caller puts the slab on the list of its class.
    List,
    /// No block of the listed slab is taken, as it seems.
    Empty,
}

/// Gives blocks of a word back, which the caller has.
pub(super) fn give(slab: &impl SlabWords, word: u32, bits: u64) -> Given {
    let left = slab.clear_bits(word, bits) & !bits & slab.all_bits(word);
    // From here on the slab may be gone.
    let entry = slab.load_entry();
    let is = |state| entry == slab_entry(slab.class(), 0, state);
    if is(FULL) && change_state(slab, FULL, LISTED) {
        Given::List
    } else if is(LISTED) && left == 0 && is_empty(slab) {
        Given::Empty
    } else {
        Given::Done
    }
}

/// Whether no block is taken. Of a slab that the caller holds the answer stays true.
pub(super) fn is_empty(slab: &impl SlabWords) -> bool {
    (0..slab.words()).all(|word| slab.load_bits(word) & slab.all_bits(word) == 0)
}

/// The words of the list of a class: the slabs that have room and no holder.
pub(super) trait ListWords {
    /// A count of the changes in the upper half, so that a head that has come back is not taken for unchanged; the number of the first
    /// slab in the lower half, 0 for none.
    fn load_head(&self) -> u64;
    /// Changes the head, if it is `from`.
    fn change_head(&self, from: u64, to: u64) -> bool;
    /// The number after that of a slab; `None` if there can be no slab of this number.
    fn load_next(&self, slab: u32) -> Option<u32>;
    fn store_next(&self, slab: u32, next: u32);
}

fn successor(head: u64, first: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(first)
}

/// Puts a slab on the list. False: others have kept changing it, and the slab is lost.
pub(super) fn push(list: &impl ListWords, slab: u32) -> bool {
    (0..TRIES).any(|_| {
        let head = list.load_head();
        list.store_next(slab, head as u32);
        list.change_head(head, successor(head, slab))
    })
}

/// Takes the first slab from the list. It may be any, where a hostile process has written the words: see its state.
pub(super) fn pop(list: &impl ListWords) -> Option<u32> {
    for _ in 0..TRIES {
        let head = list.load_head();
        let first = head as u32;
        if first == 0 {
            return None;
        }
        let Some(next) = list.load_next(first) else {
            // No slab: the list is at its end.
            list.change_head(head, successor(head, 0));
            continue;
        };
        if list.change_head(head, successor(head, next)) {
            return Some(first);
        }
    }
    None
}
