//! What is checked, one file a promise.
//!
//! | file | promise |
//! |---|---|
//! | [`delivery`] | what a process sends to a node arrives once and in order, with the bytes that it had |
//! | [`bounds`] | no byte lands outside an export, before it was granted or after it was revoked |
//! | [`completions`] | each completion is told once |
//! | [`importers`] | an export is granted to those that its program has listed, and to nobody else; they learn when it is revoked |
//! | [`forgery`] | what shows a wrong key, or asks for what it was not granted, is refused and changes nothing |
//! | [`pins`] | pages of outstanding transfers and of exports are never unpinned, and at rest no others are held |
//! | [`atomics`] | each atomic operation is done once, and its answer is what the word held |
//! | [`global_memory`] | a page of global memory is the page written last, and the directory names what is stored and nothing else |
//! | [`happens_before`] | a load of lazy shared memory gives the last store before it, or one that is not ordered with it |
//! | [`liveness`] | once faults have ended nothing is pending for ever |
//! | [`restarts`] | who is told that a peer has started anew is told so once for each time that it has |
//! | [`room`] | no network interface takes more memory than it has, and a node at rest holds what its programs hold and nothing else |

pub mod allowed;
pub mod atomics;
pub mod bounds;
pub mod completions;
pub mod delivery;
pub mod forgery;
pub mod global_memory;
pub mod happens_before;
pub mod importers;
pub mod liveness;
pub mod pins;
pub mod restarts;
pub mod room;

/// A violation of what the project promises, with the checker that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub check: &'static str,
    pub text: String,
}

pub(crate) fn violation(check: &'static str, text: String) -> Violation {
    Violation { check, text }
}

/// What a check promises holds, or is a violation with this text.
pub(crate) fn expect(holds: bool, check: &'static str, text: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(violation(check, text())) }
}
