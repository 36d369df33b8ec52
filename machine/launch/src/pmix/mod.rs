//! PMIx: what `mpirun`, `prterun` and `srun --mpi=pmix` speak, by their client library.
//!
//! The protocol under the library's interface differs between releases and is no standard; the interface is one (PMIx
//! Standard 4.1), and so is its binary form under the name `libpmix.so.2`. The library is loaded when the environment asks
//! for it, so that neither building nor running elsewhere needs it.

mod abi;
mod launcher;
#[allow(unsafe_code)]
mod library;
#[cfg(test)]
mod tests;

pub(crate) use launcher::Pmix;
