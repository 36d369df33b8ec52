//! The suite that every design passes, models, counts that are kept, and what several tests need.

pub(crate) mod conformance;
mod golden;
mod models;
pub(crate) mod testing;
pub(crate) mod words;
