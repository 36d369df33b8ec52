//! Models, counts that are kept, and what several tests need.

mod golden;
mod models;
pub(crate) mod testing;
pub(crate) mod words;
