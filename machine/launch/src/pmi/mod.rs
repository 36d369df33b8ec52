//! PMI-1 and PMI-2: text over a descriptor that the launcher leaves open (PMI_FD).
//!
//! Both begin with one line by which rank and launcher agree on the version. Commands of PMI-1 are lines of at most 1,024
//! bytes; those of PMI-2 have their length in six digits in front. (Balaji et al., "PMI: A Scalable Parallel
//! Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010.)

mod dialect;
mod launcher;
mod pieces;
#[cfg(test)]
mod tests;
mod v1;
mod v2;
mod wire;

pub(crate) use launcher::Pmi;
