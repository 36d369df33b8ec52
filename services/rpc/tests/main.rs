//! Tests of calls between nodes.
#![allow(clippy::duplicate_mod, reason = "a fuzz target has one of these files alone, with the network that it needs")]

mod attack;
mod calls;
mod records;
mod xdr;
