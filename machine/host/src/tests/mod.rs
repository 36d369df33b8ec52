//! Shared test helpers.

pub(crate) mod testing;
