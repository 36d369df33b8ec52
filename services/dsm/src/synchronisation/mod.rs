//! Locks and barriers.

mod barriers;
mod locks;
#[cfg(test)]
mod tests;

pub(crate) use barriers::{Barriers, Round};
pub(crate) use locks::Locks;
