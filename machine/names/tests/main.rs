//! Tests of stores of names.

mod hostile;
mod stores;
