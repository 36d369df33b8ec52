//! Imports of this process: asked for, granted, mapped where they can be.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mapwire_host::memory::MappedBuffer;
use mapwire_node::ImportError;
use mapwire_transport::fabric::Fabric;
use mapwire_vmmc::{Grant, RequestId, VmmcError};
use mapwire_wire::{Endpoint, ImportId, Key, NodeId, Rights};

use crate::driver::{Driver, PROCESS};
use crate::error::DriverError;
use crate::exports::STATUS_TAG;

/// An import of this process, entered in the NIC, and mapped if it is on the direct path.
#[derive(Debug)]
pub struct LocalImport {
    /// Its number in the NIC.
    pub id: ImportId,
    /// What was granted.
    pub grant: Grant,
    /// The exporter's memory, on the direct path: all of it, or its whole pages.
    pub mapped: Option<MappedBuffer>,
}

/// An import that is given up when the commands before that have been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenUp {
    /// How many commands had been written.
    behind: u64,
    id: ImportId,
    grant: Grant,
}

impl<F: Fabric> Driver<F> {
    /// Whether a node takes requests. One that is asked all the same, over and over, counts as gone when a message to it is lost.
    pub fn takes_requests(&self, from: NodeId) -> bool {
        self.node.takes_requests(from)
    }

    /// Asks a node for an export.
    ///
    /// # Errors
    /// A name that is none.
    pub fn ask_import(
        &mut self,
        from: NodeId,
        name: &str,
        rights: Rights,
        token: Option<Key>,
        timeout_ns: u64,
    ) -> Result<RequestId, DriverError> {
        let now_ns = mapwire_host::waiting::now_ns();
        let from = Endpoint::first_of(from);
        let request = self.node.ask_import(now_ns, PROCESS, from, name, rights, token, timeout_ns);
        let request = request.map_err(|error| self.import_error(error))?;
        self.poll();
        Ok(request)
    }

    /// The outcome of an import that was asked for, when there is one. A grant on the direct path is complete when its
    /// memory has been passed as well.
    pub fn take_import(&mut self, request: RequestId) -> Option<Result<LocalImport, DriverError>> {
        let outcome = self.node.outcome(PROCESS, request)?;
        let mut mapped = None;
        if let Ok(granted) = outcome {
            let grant = granted.grant;
            match grant.direct {
                // Nothing was promised; what was passed all the same is closed.
                None => self.drop_passed(request),
                Some(_) => match self.take_memory(request) {
                    Some(Ok(memory)) => match map(&grant, &memory) {
                        Ok(memory) => {
                            self.stored_in_place.watch(memory.stored_bytes());
                            mapped = Some(memory);
                        }
                        Err(error) => {
                            self.abandon_import(request);
                            return Some(Err(error));
                        }
                    },
                    Some(Err(peer)) => {
                        self.abandon_import(request);
                        return Some(Err(DriverError::NoDescriptor(peer)));
                    }
                    None if self.is_gone(grant.node()) => {
                        self.abandon_import(request);
                        return Some(Err(self.why_gone(grant.node())));
                    }
                    None => return None,
                },
            }
        }
        let entered = self.node.enter_import(PROCESS, request)?;
        Some(match entered {
            Ok((id, grant)) => Ok(LocalImport { id, grant, mapped }),
            Err(error) => {
                self.poll();
                Err(self.import_error(error))
            }
        })
    }

    #[cold]
    pub(crate) fn import_error(&mut self, error: ImportError) -> DriverError {
        match error {
            ImportError::Vmmc(VmmcError::PeerGone { peer, .. }) if self.breaches.of(peer.node).is_some() => {
                self.why_gone(peer.node)
            }
            ImportError::Vmmc(error) => error.into(),
            ImportError::Nic(error) => error.into(),
        }
    }

    /// Gives up an import whose memory has not come, and all that has.
    pub fn abandon_import(&mut self, request: RequestId) {
        self.drop_passed(request);
        self.node.abandon_import(PROCESS, request);
        self.poll();
    }

    /// Closes what a peer has passed for an import.
    pub(crate) fn drop_passed(&mut self, request: RequestId) {
        let tag = u64::from(request.0);
        self.passed.remove(&tag);
        self.passed.remove(&(tag | STATUS_TAG));
    }

    /// The memory and the status that a peer has passed for an import, once both are there, or the peer if this process had no
    /// descriptor left for one of them.
    fn take_memory(&mut self, request: RequestId) -> Option<Result<(OwnedFd, OwnedFd), NodeId>> {
        let tags = [u64::from(request.0), u64::from(request.0) | STATUS_TAG];
        if !tags.iter().all(|tag| self.passed.contains_key(tag)) {
            return None;
        }
        let [memory, status] = tags.map(|tag| self.passed.remove(&tag));
        let ((peer, memory), (_, status)) = (memory?, status?);
        Some(memory.zip(status).ok_or(peer))
    }

    /// Gives an import up, and tells the exporter: at once, or when the commands that wait, which may use it, have been read.
    pub fn release_import(&mut self, id: ImportId, grant: &Grant) {
        if self.queue.has_commands() {
            let given_up = GivenUp { behind: self.queue.written(), id, grant: *grant };
            self.given_up.push_back(given_up);
        } else {
            self.node.release_import(PROCESS, id, grant);
            self.poll();
        }
    }

    /// Gives up the imports that waited for commands. Whether there were any.
    #[cold]
    pub(crate) fn release_given_up(&mut self) -> bool {
        let mut any = false;
        while let Some(next) = self.given_up.front()
            && self.queue.has_read(next.behind)
        {
            any = true;
            let GivenUp { id, grant, .. } = *next;
            self.given_up.pop_front();
            self.node.release_import(PROCESS, id, &grant);
        }
        any
    }
}

/// Maps the memory that a grant on the direct path promises.
/// Bytes that this process stored straight into memory of ranks of the same host.
#[derive(Debug, Default)]
pub(crate) struct StoredInPlace {
    /// By each import that is mapped, which counts itself.
    imports: Vec<Arc<AtomicU64>>,
    /// By others, and by imports that were.
    others: u64,
}

impl StoredInPlace {
    fn watch(&mut self, stored: &Arc<AtomicU64>) {
        self.total();
        self.imports.push(Arc::clone(stored));
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.others += bytes;
    }

    /// All of them.
    pub(crate) fn total(&mut self) -> u64 {
        let (mut mapped, others) = (0, &mut self.others);
        self.imports.retain(|stored| {
            let is_mapped = Arc::strong_count(stored) > 1;
            let bytes = stored.load(Ordering::Relaxed);
            *(if is_mapped { &mut mapped } else { &mut *others }) += bytes;
            is_mapped
        });
        mapped + *others
    }
}

fn map(grant: &Grant, (memory, status): &(OwnedFd, OwnedFd)) -> Result<MappedBuffer, DriverError> {
    // The exporter's word, which was checked to lie within the export: `map` holds it against the file.
    let part = grant.direct.map_or(0..0, |part| {
        let first = usize::try_from(part.offset).unwrap_or(usize::MAX);
        let bytes = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        first..first.saturating_add(bytes)
    });
    let writable = grant.rights.contains(Rights::STORE);
    Ok(MappedBuffer::map(memory, status, part, writable)?)
}
