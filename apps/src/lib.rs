//! Parallel programs on mapwire's shared memory, each checked against its own sequential run.
//!
//! | program | what it does | how its workers meet |
//! |---|---|---|
//! | [`tsp`] | shortest tour by branch and bound | a queue and the best tour, each under a lock |
//! | [`sor`] | red-black over-relaxation of a matrix | a barrier a half-sweep; neighbours read edge rows |
//! | [`is`] | integer sort: ranks of keys | a barrier a phase; all read all counts |
//! | [`lu`] | LU factorisation in blocks | a barrier a phase; all read a step's row and column |
//!
//! Every program is written once, against a [`crew`] of workers, and runs over any: one thread (its sequential run),
//! plain threads (the baseline), or the ranks of a mapwire job. The loops that compute are the very same machine code.
#![deny(unsafe_code)]

pub mod cli;
pub mod crew;
pub mod error;
pub mod how;
pub mod is;
pub mod lu;
pub mod phase;
pub mod program;
pub mod report;
pub mod run;
pub mod sor;
pub mod tsp;
