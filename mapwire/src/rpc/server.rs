//! Calls of others, taken by threads of the program.

use core::time::Duration;
use std::sync::Arc;

use super::error::Error;
use super::inner::Inner;
use super::program::Program;
use super::request::Request;

/// Takes the calls that come for this rank's programs. Cheap to clone; any number of threads may take calls.
#[derive(Clone, Debug)]
pub struct Server {
    inner: Arc<Inner>,
}

impl Server {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner) }
    }

    /// Serves a version of a program from here on.
    ///
    /// # Errors
    /// [`Error::Served`].
    pub fn register(&self, program: u32, version: u32) -> Result<(), Error> {
        let is_new = self.inner.call(|service| service.register(program, version))?;
        if is_new { Ok(()) } else { Err(Error::Served { program, version }) }
    }

    /// Ends that: further calls are refused.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn unregister(&self, program: u32, version: u32) -> Result<(), Error> {
        self.inner.call(|service| service.unregister(program, version))
    }

    /// Waits for the next call, for `timeout` at most: `None` when that is over. Callers take turns.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<Request>, Error> {
        loop {
            let Some(call) = self.inner.wait(timeout, |service| service.next_call())? else { return Ok(None) };
            // One whose connection is over has no arguments any more.
            if let Some(request) = Request::new(&self.inner, call) {
                return Ok(Some(request));
            }
        }
    }

    /// The next call, if there is one.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn poll(&self) -> Result<Option<Request>, Error> {
        self.next(Some(Duration::ZERO))
    }

    /// Serves a program until `is_over`, which is asked after each call and every `pause`.
    ///
    /// # Errors
    /// [`Error::Served`]; [`Error::Closed`].
    pub fn run<P: Program>(
        &self,
        program: &mut P,
        pause: Duration,
        mut is_over: impl FnMut(&P) -> bool,
    ) -> Result<(), Error> {
        self.register(P::PROGRAM, P::VERSION)?;
        while !is_over(program) {
            if let Some(mut request) = self.next(Some(pause))?
                && let Err(error) = program.call(&mut request)
            {
                tracing::debug!(%error, "a call from rank {} failed", request.rank());
            }
        }
        self.unregister(P::PROGRAM, P::VERSION)
    }
}
