//! Locks and barriers.

mod barriers;
mod locks;

pub(crate) use barriers::Barriers;
pub(crate) use locks::Locks;
