//! Locks and barriers.

mod barriers;
mod locks;
#[cfg(test)]
mod tests;

pub(crate) use barriers::Barriers;
pub(crate) use locks::Locks;
