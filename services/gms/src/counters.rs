//! What a node did since its start.

use crate::encoding::KINDS;

/// Counts since [`Gms::new`](crate::Gms::new).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Getpages of the program.
    pub gets: u64,
    /// Of them, those that found the page.
    pub hits: u64,
    /// Of them, those that did not.
    pub absents: u64,
    /// Putpages of the program.
    pub puts: u64,
    /// Of them, those that somebody stored.
    pub stored: u64,
    /// Of them, those that nobody stored.
    pub refused: u64,
    /// Of them, those whose page was too old to be worth a frame.
    pub dropped_old: u64,
    /// Discardpages of the program.
    pub discards: u64,
    /// Getpages that this node forwarded as directory node.
    pub forwarded: u64,
    /// Pages that this node stored for others.
    pub taken_in: u64,
    /// Pages that this node sent to others as storing node.
    pub served: u64,
    /// Pages that left this node to make room: forwarded to another node, or dropped.
    pub replaced: u64,
    /// Of them, those that were forwarded.
    pub moved: u64,
    /// Pages not on permanent storage that were lost, because a directory had no room for them after it changed.
    pub lost: u64,
    /// Pages that came although nobody asked.
    pub strays: u64,
    /// Maps adopted.
    pub maps: u64,
    /// Epochs begun as initiator.
    pub epochs: u64,
    /// Messages sent, by [kind](crate::Message::kind): those of this node to itself are left out.
    pub messages: [u64; KINDS + 1],
}
