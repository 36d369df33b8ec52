//! Parallel programs on mapwire's shared memory, each checked against its own sequential run.
//!
//! | program | what it does | how its workers meet |
//! |---|---|---|
//! | [`tsp`] | shortest tour by branch and bound | a queue and the best tour, each under a lock |
//! | [`sor`] | red-black over-relaxation of a matrix | a barrier a half-sweep; neighbours read edge rows |
//! | [`is`] | integer sort: ranks of keys | a barrier a phase; all read all counts |
//! | [`lu`] | LU factorisation in blocks | a barrier a phase; all read a step's row and column |
//! | [`lu_nc`] | LU factorisation of a row-major matrix | a barrier a step; rows of different workers share pages |
//! | [`radix`] | radix sort | two barriers a digit; all write all over the target |
//! | [`tasks`] | a search of an uneven tree | deques under locks, from which idle workers steal |
//! | [`nbody`] | gravity of all pairs of bodies | two barriers a step; all read all positions |
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
pub mod lu_nc;
pub mod nbody;
pub mod phase;
pub mod program;
pub mod radix;
mod random;
pub mod report;
pub mod run;
pub mod sor;
pub mod tasks;
pub mod tsp;
