//! Tests of calls between nodes.

mod attack;
mod calls;
mod records;
mod xdr;
