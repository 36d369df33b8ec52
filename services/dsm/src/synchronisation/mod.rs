//! Locks and barriers.

mod barriers;
mod locks;
#[cfg(test)]
mod tests;
mod waited;

pub(crate) use barriers::Barriers;
pub(crate) use locks::Locks;
pub use waited::WaitedBarrier;
