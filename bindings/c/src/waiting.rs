//! Waiting for any of several signals.

use core::mem::MaybeUninit;
use core::time::Duration;

use mapwire::Awaited;

use crate::arguments::{give, required};
use crate::export::{MW_FOREVER, mw_export_t};
use crate::failure::{Failure, call};
use crate::memory;
use crate::node::mw_node_t;
use crate::status::mw_status_t;

/// A signal to wait for: it has arrived when the word at `offset` of `exported` is at least `value`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mw_awaited_t<'a> {
    /// Export that contains it.
    pub exported: Option<&'a mw_export_t>,
    /// Offset in the export, in bytes; a multiple of 8.
    pub offset: u64,
    /// Least value that counts.
    pub value: u64,
}

/// Waits until one of `count` signals has arrived, for `timeout_ns` nanoseconds at most (`MW_FOREVER`: without limit). Returns its index
/// in `*index`; of several that have arrived, the lowest. What was put before the signal is visible then. Serves others meanwhile, and
/// waits as `MAPWIRE_WAIT` says.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: no signals. `MW_ERR_TIMEOUT`: the timeout has expired. `MW_ERR_GONE`: with `MW_FOREVER`, every rank that may import
/// one of the exports has left or died. `MW_ERR_RANGE`, `MW_ERR_ALIGNMENT`: as `mw_export_wait_signal`, for any of them.
///
/// # Safety
/// `signals` points to `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_wait_any(
    node: Option<&mw_node_t>,
    signals: *const mw_awaited_t<'_>,
    count: usize,
    timeout_ns: u64,
    index: Option<&mut MaybeUninit<usize>>,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        let place = required(index, "index")?;
        // SAFETY: the caller's promise.
        let signals = unsafe { memory::values(signals, count, "signals") }?;
        let mut exports = Vec::with_capacity(count);
        for signal in signals {
            exports.push(required(signal.exported, "exported")?.read()?);
        }
        let awaited: Vec<_> = signals
            .iter()
            .zip(&exports)
            .map(|(signal, export)| Awaited { export, offset: signal.offset, value: signal.value })
            .collect();
        let timeout = (timeout_ns != MW_FOREVER).then(|| Duration::from_nanos(timeout_ns));
        match node.wait_any(&awaited, timeout)? {
            Some(found) => give(Some(place), "index", found),
            None => Err(Failure {
                status: mw_status_t::MW_ERR_TIMEOUT,
                message: format!(
                    "none of {count} signals has come after {:?}: do the senders run, and send so much?",
                    Duration::from_nanos(timeout_ns)
                ),
            }),
        }
    })
}
