//! Calls under way.

use core::time::Duration;

use mapwire_rpc::{CallError, Refusal, Xid};

use super::caller::Caller;
use super::error::Error;
use super::record::Record;

/// A call under way. Dropped without being waited for, its reply is dropped when it comes; the call is not taken back.
#[must_use = "its reply is dropped unless it is waited for"]
#[derive(Debug)]
pub struct Pending<'a> {
    caller: &'a Caller,
    procedure: u32,
    /// `None`: it is over.
    xid: Option<Xid>,
}

impl<'a> Pending<'a> {
    pub(super) const fn new(caller: &'a Caller, procedure: u32, xid: Xid) -> Self {
        Self { caller, procedure, xid: Some(xid) }
    }

    /// Waits for the result, as long as the caller's [timeout](Caller::set_timeout) says.
    ///
    /// # Errors
    /// [`Error::Call`]; with [`CallError::TimedOut`] the call is given up.
    pub fn wait(mut self) -> Result<Record, Error> {
        match self.wait_for(self.caller.timeout()) {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(self.caller.failed(self.procedure, CallError::TimedOut)),
            Err(error) => Err(error),
        }
    }

    /// Waits for the result, for `timeout` at most: `None` when that is over, and the call goes on.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); a result that was given out.
    pub fn wait_for(&mut self, timeout: Option<Duration>) -> Result<Option<Record>, Error> {
        let xid = self.xid.ok_or(Refusal::NotAwaited(0))?;
        let Some(outcome) = self.caller.inner.wait(timeout, |service| service.take_outcome(xid))? else {
            return Ok(None);
        };
        self.xid = None;
        self.caller.outcome(self.procedure, outcome).map(Some)
    }

    /// The result, if it has come.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    pub fn poll(&mut self) -> Result<Option<Record>, Error> {
        let xid = self.xid.ok_or(Refusal::NotAwaited(0))?;
        let inner = &self.caller.inner;
        inner.node.poll();
        let Some(outcome) = inner.call(|service| service.take_outcome(xid))? else { return Ok(None) };
        self.xid = None;
        self.caller.outcome(self.procedure, outcome).map(Some)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(xid) = self.xid {
            self.caller.abandon(xid);
        }
    }
}
