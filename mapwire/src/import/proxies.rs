//! Sends to proxy addresses: each names a destination, (import, offset), with one number (VMMC §2).

use core::any::Any;
use std::sync::{Arc, PoisonError};

use mapwire_driver::imports::LocalImport;
use mapwire_vmmc::{ProxyAddress, ProxyError};
use mapwire_wire::Signal;

use super::{Held, Import};
use crate::error::Result;
use crate::node::Node;

impl Import {
    /// Makes an import of what the driver holds, and gives it its proxy addresses.
    pub(super) fn enter(node: &Node, local: LocalImport, name: &str) -> Result<Self> {
        let (id, grant) = (local.id, local.grant);
        let outcome = node.proxies().write().unwrap_or_else(PoisonError::into_inner).enter(grant.length, |proxy| {
            let engine = node.engine();
            let exporter = local.grant.node();
            let held = Arc::new(Held {
                engine: Arc::clone(engine),
                direct_stores: engine.direct_stores_to(exporter),
                is_remote: engine.is_remote(exporter),
                has_rma: engine.has_rma(exporter),
                local,
                node: node.clone(),
                proxy,
                name: name.to_owned(),
            });
            (Arc::clone(&held) as Arc<dyn Any + Send + Sync>, held)
        });
        match outcome {
            Ok(held) => Ok(Self { held, is_owner: true }),
            Err(full) => {
                node.engine().lock().release_import(id, &grant);
                Err(full.into())
            }
        }
    }
}

/// Sends by proxy address: to an import of this process that is named by a number alone, wherever the import itself is kept.
impl Node {
    /// The import that holds `length` bytes at `address`, and the offset within it.
    fn resolve(&self, address: ProxyAddress, length: u64) -> Result<(Import, u64), ProxyError> {
        // The import is used when the lock has been given back: a call may wait, and run handlers that drop imports.
        let space = self.proxies().read().unwrap_or_else(PoisonError::into_inner);
        let (held, offset) = space.resolve(address, length)?;
        // All that have addresses are imports.
        let held = Arc::clone(held).downcast::<Held>().map_err(|_| ProxyError::NoImport(address))?;
        Ok((Import { held, is_owner: false }, offset))
    }

    /// Stores `data` at a proxy address, as [`Import::send`] does at the offset that it stands for.
    ///
    /// # Errors
    /// As [`Import::send`]; a range that is not within one import of this process, or an import that has been dropped.
    pub fn send_to(&self, to: ProxyAddress, data: &[u8]) -> Result<()> {
        self.check_process()?;
        let (import, offset) = self.resolve(to, data.len() as u64)?;
        import.send(data, offset)
    }

    /// Copies `into.len()` bytes from a proxy address, as [`Import::fetch`] does.
    ///
    /// # Errors
    /// As [`Import::fetch`], and as [`send_to`](Self::send_to).
    pub fn fetch_from(&self, from: ProxyAddress, into: &mut [u8]) -> Result<()> {
        self.check_process()?;
        let (import, offset) = self.resolve(from, into.len() as u64)?;
        import.fetch(offset, into)
    }

    /// Stores `data` at one proxy address, then `value` at another of the same import, as [`Import::put_signal`] does.
    ///
    /// # Errors
    /// As [`Import::put_signal`], and as [`send_to`](Self::send_to); addresses in two imports.
    pub fn put_signal_to(&self, to: ProxyAddress, data: &[u8], signal: ProxyAddress, value: u64) -> Result<()> {
        self.check_process()?;
        let (import, offset) = self.resolve(to, data.len() as u64)?;
        let (other, signal_offset) = self.resolve(signal, Signal::WORD_BYTES)?;
        if !Arc::ptr_eq(&import.held, &other.held) {
            return Err(ProxyError::Apart { data: to, signal }.into());
        }
        import.put_signal(data, offset, signal_offset, value)
    }
}
