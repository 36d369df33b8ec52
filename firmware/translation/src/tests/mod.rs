//! Models, golden counts, and shared helpers.

mod golden;
mod models;
pub(crate) mod testing;
pub(crate) mod words;
