//! Waits for any of several signals.

use core::time::Duration;

use mapwire_driver::engine::{AskForWake, Asked};

use crate::error::{Error, Result};
use crate::export::{Export, wait_for};
use crate::node::Node;
use crate::raw;

/// A signal that is waited for: it has come when the word at `offset` of `export` is at least `value`.
#[derive(Clone, Copy, Debug)]
pub struct Awaited<'a> {
    /// The export that it is stored in.
    pub export: &'a Export,
    /// Where in the export, in bytes; a multiple of 8.
    pub offset: u64,
    /// The least value.
    pub value: u64,
}

impl Node {
    /// Waits until one of `signals` has come, for `timeout` at most; gives its index, or `None` when the time is over. Of several
    /// that have come it gives the lowest index. What was put before the signal is there.
    ///
    /// Without a timeout the wait ends with an error when no signal can come any more, since nobody is left who could store one: see
    /// [`Export::wait_signal`].
    ///
    /// # Errors
    /// No signals; as [`Export::signal`] for any of them; without a timeout, [`Error::Deserted`] for the first of them.
    pub fn wait_any(&self, signals: &[Awaited<'_>], timeout: Option<Duration>) -> Result<Option<usize>> {
        self.check_process()?;
        let Some(first) = signals.first() else { return Err(Error::NothingAwaited) };
        let mut words = Vec::with_capacity(signals.len());
        for signal in signals {
            signal.export.signal(signal.offset)?;
            words.push((signal.export.signal_address(signal.offset)?, signal.value));
        }
        let look = || words.iter().position(|&(address, value)| raw::load(address).is_ok_and(|seen| seen >= value));
        let asked = Several(signals.iter().filter_map(|s| s.export.direct()).collect());
        let direct = (!asked.0.is_empty()).then_some(&asked as &dyn AskForWake);
        let are_deserted = || signals.iter().all(|signal| signal.export.is_deserted());
        wait_for(self, direct, timeout, look, are_deserted, || first.export.deserted(first.offset))
    }
}

struct Several<'a>(Vec<&'a dyn AskForWake>);

impl AskForWake for Several<'_> {
    fn ask(&self) -> Asked {
        // Each is asked, also behind one that is not sure.
        let asked: Vec<Asked> = self.0.iter().map(|memory| memory.ask()).collect();
        let first_that = |what| asked.iter().copied().find(|&answer| answer == what);
        first_that(Asked::Unsure).or(first_that(Asked::Nobody)).unwrap_or(Asked::Sure)
    }

    fn end(&self) {
        self.0.iter().for_each(|memory| memory.end());
    }
}
