//! Programs as types.

use super::error::Error;
use super::request::Request;

/// A version of a program, for [`Server::run`](super::Server::run).
pub trait Program {
    /// Its number.
    const PROGRAM: u32;
    /// Its version.
    const VERSION: u32;

    /// Carries out a call, and answers it: [`Request::procedure`], [`Request::arguments`], [`Request::reply`]. A call that is not answered here
    /// fails at its caller: as one of unreadable arguments if they could not be read, and with `SYSTEM_ERR` otherwise.
    ///
    /// # Errors
    /// Whatever kept it from answering.
    fn call(&mut self, request: &mut Request) -> Result<(), Error>;
}
