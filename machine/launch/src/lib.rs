//! How ranks that `mpirun`, `prterun`, `mpiexec` or `srun` started learn of each other, and those that no common launcher started.
//!
//! [`detect`] tells from the environment which launcher started this process, [`Detected::join`] connects to it, and a
//! [`Launcher`] exchanges values between the ranks. A [`Membership`] makes a job of them.
//!
//! | launcher | protocol | how it is spoken |
//! |---|---|---|
//! | `mpirun` (Open MPI), `prterun`, `srun --mpi=pmix` | PMIx | by `libpmix.so.2`, loaded when it is needed |
//! | `srun --mpi=pmi2` | PMI-2 | here, over the inherited descriptor |
//! | `mpiexec` (MPICH, hydra) | PMI-2 or PMI-1 | the same |
//! | none, or `mapwire run --names` | [names] | by `mapwire serve` or etcd |
//!
//! Servers and clients that come and go meet at [doors] without a launcher.
//!
//! Nothing of the launchers is needed to build this crate.

#![deny(unsafe_code)]

mod detect;
pub mod doors;
mod error;
#[allow(unsafe_code)]
mod inherited;
mod launcher;
mod membership;
pub mod names;
mod pmi;
mod pmix;
mod worker;

pub use detect::{Detected, NamedJob, detect};
pub use error::LaunchError;
pub use launcher::{Event, Launcher, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use membership::Membership;

/// A name of 1 to 64 ASCII letters, digits, `.`, `-` and `_`; else the beginning of what was given.
fn checked_name(text: &str) -> Result<String, String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    match (1..=64).contains(&text.len()) && text.bytes().all(is_part) {
        true => Ok(text.into()),
        false => Err(text.chars().take(80).collect()),
    }
}

/// Lines of up to `most` bytes that are safe to print.
fn clean_text(bytes: &[u8], most: usize) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= most)?;
    text.chars().all(|it| it == '\n' || !it.is_control()).then_some(text)
}
