//! The history of the format, newest first. A peer of another version is refused, never guessed at.
//!
//! A change to any byte that travels, or to which bytes are legal, raises the version of its format
//! ([`VERSION`](crate::VERSION) for packets and for the control messages in them,
//! [`COMMAND_VERSION`](crate::COMMAND_VERSION) for commands), gets a line here and new golden vectors in
//! `tests/golden.rs`.
//!
//! | version | change |
//! |---|---|
//! | packets 1 | the 48-byte header; store, fetch request, fetch reply, fetch refused, store refused, handler, nothing, atomic |
//! | control 1 | import request, cancel, granted, refused; revoked, released, goodbye |
//! | commands 1 | short send, long send, fetch, handler |
//!
//! Until the first release the formats change without a new version: there is no other build to talk to.
