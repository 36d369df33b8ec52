//! Exports of this process: memory made usable by the NIC, offered by name, and taken back.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use mapwire_host::memory::{SharedBuffer, Writers};
use mapwire_host::views::MultiView;
use mapwire_nic::{Export, Landing};
use mapwire_translation::PageRange;
use mapwire_vmmc::{Action, Importers, Offer};
use mapwire_wire::{
    ExportId, HandlerId, Key, MAX_CONTROL_BYTES, MappedPart, NodeId, Rights, TraceOp,
};

use crate::driver::{Driver, PROCESS, job_key};
use crate::error::DriverError;
use crate::imports::Granted;
use crate::log::{Line, Log};
use crate::notices::{Notice, Notification, NotificationHandler};

/// Memory that importers can map.
#[derive(Clone, Debug)]
pub enum DirectMemory {
    /// A buffer, or memory of the program that was adopted.
    Buffer(Arc<Mutex<SharedBuffer>>),
    /// The shared memory's segment, by way of its privileged view; for peers only, and never revoked while it is open.
    Views(Arc<MultiView>),
}

/// Whom an export with these rights lets store: who may not is kept out by the kernel.
#[must_use]
pub fn writers(rights: Rights) -> Writers {
    if rights.contains(Rights::STORE) {
        Writers::All
    } else {
        Writers::Present
    }
}

/// What a process asks to export.
pub struct ExportRequest {
    /// Under which name.
    pub name: String,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// What importers may do.
    pub rights: Rights,
    /// Who they may be.
    pub importers: Importers,
    /// What importers may map (the direct path): memory that lies in the range, all of it or its whole pages.
    pub direct: Option<DirectMemory>,
    /// Who is told of messages with a notification.
    pub handler: Option<NotificationHandler>,
}

impl ExportRequest {
    /// Which bytes of the range importers may map.
    fn mapped_part(&self) -> Option<MappedPart> {
        match self.direct.as_ref()? {
            DirectMemory::Buffer(buffer) => {
                let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                let first = buffer.as_ptr().addr() as u64;
                // Nothing, if the memory does not lie there.
                let offset = first.checked_sub(self.address)?;
                let bytes = (buffer.len() as u64).min(self.length.checked_sub(offset)?);
                (bytes > 0).then_some(MappedPart { offset, bytes })
            }
            DirectMemory::Views(_) => Some(MappedPart {
                offset: 0,
                bytes: self.length,
            }),
        }
    }
}

/// An export of this process.
pub(crate) struct LocalExport {
    pub(crate) id: ExportId,
    pub(crate) key: Key,
    length: u64,
    pub(crate) handler: Option<NotificationHandler>,
    direct: Option<DirectMemory>,
    /// Pages that stay pinned as long as the export stands (VMMC §4.4).
    held: Vec<PageRange>,
    /// Where it is redirected to.
    landing: Option<HeldLanding>,
}

/// A buffer that a redirected export lands in, kept and pinned.
#[derive(Debug)]
pub(crate) struct HeldLanding {
    range: PageRange,
    _buffer: Arc<Mutex<SharedBuffer>>,
}

/// A former landing, with the export whose fetches may still read it.
#[derive(Debug)]
pub(crate) struct LeftLanding {
    export: ExportId,
    landing: HeldLanding,
}

impl core::fmt::Debug for LocalExport {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LocalExport")
            .field("id", &self.id)
            .field("direct", &self.direct.is_some())
            .finish_non_exhaustive()
    }
}

/// Bit of the tag under which the status of an export is passed; its memory is passed under the tag without it.
pub(crate) const STATUS_TAG: u64 = 1 << 63;

impl LocalExport {
    /// What importers may map.
    pub(crate) fn direct(&self) -> Option<&DirectMemory> {
        self.direct.as_ref()
    }
}

impl Driver {
    /// Exports memory.
    ///
    /// Pages that the ring path stores to are pinned first (VMMC §4.4): all, or those at the edges of what importers map. What they
    /// map is not pinned: the mappings keep its pages, and the MMU translates. Of several exports of one buffer the first takes the direct
    /// path: revoking it moves the buffer, which the importers of another would not follow.
    ///
    /// # Errors
    /// Empty range, no rights, name taken, limit on pinned pages, NIC memory. Nothing is exported then.
    pub fn export(&mut self, mut request: ExportRequest) -> Result<ExportId, DriverError> {
        if request.length == 0 {
            return Err(DriverError::EmptyExport);
        }
        if request.rights.is_empty() {
            return Err(DriverError::NoRights);
        }
        if let Some(DirectMemory::Buffer(buffer)) = &request.direct
            && self.is_direct(buffer)
        {
            request.direct = None;
        }
        if let Some(DirectMemory::Buffer(buffer)) = &request.direct {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.set_watched(self.watching);
            buffer.share(writers(request.rights))?;
        }
        let part = request.mapped_part();
        let key = job_key()?;
        let held = self.hold_unmapped(request.address, request.length, part)?;
        let entry = Export {
            process: PROCESS,
            key,
            address: request.address,
            length: request.length,
            rights: request.rights,
            landing: None,
        };
        let outcome = self
            .nic
            .export(entry)
            .map_err(DriverError::from)
            .and_then(|id| {
                let offer = Offer {
                    name: request.name,
                    export: id,
                    key,
                    length: request.length,
                    rights: request.rights,
                    importers: request.importers,
                    direct: part,
                };
                // Known to the driver before it is offered: an importer may wait already, and is answered at once.
                self.exports.push(LocalExport {
                    id,
                    key,
                    length: request.length,
                    handler: request.handler,
                    direct: request.direct,
                    held: held.clone(),
                    landing: None,
                });
                if let Err(error) = self.vmmc.offer(offer) {
                    self.exports.pop();
                    let _ = self.nic.revoke(id);
                    return Err(error.into());
                }
                Ok(id)
            });
        if outcome.is_ok() {
            for range in &held {
                self.trace_pages(TraceOp::Export, *range);
            }
        }
        match outcome {
            // Importers that wait for the name are answered now, not when this process next comes by.
            Ok(_) => _ = self.poll(),
            Err(_) => held
                .into_iter()
                .for_each(|range| self.pages.release_export(range)),
        }
        outcome
    }

    /// Pins and holds the pages of an export that importers do not map.
    fn hold_unmapped(
        &mut self,
        address: u64,
        length: u64,
        part: Option<MappedPart>,
    ) -> Result<Vec<PageRange>, DriverError> {
        let edges = match part {
            None => [(0, length), (0, 0)],
            Some(part) => {
                let end = part.offset + part.bytes;
                [(0, part.offset), (end, length - end)]
            }
        };
        let mut held = Vec::new();
        for (offset, bytes) in edges {
            if bytes == 0 {
                continue;
            }
            let range = PageRange::covering(address + offset, bytes)?;
            if let Err(error) = self.pages.hold_export(&mut self.nic, range) {
                held.into_iter()
                    .for_each(|range| self.pages.release_export(range));
                return Err(error.into());
            }
            held.push(range);
        }
        Ok(held)
    }

    /// How many imports of an export are held.
    #[must_use]
    pub fn holders(&self, id: ExportId) -> usize {
        self.vmmc.holders(id).unwrap_or(0)
    }

    /// Whether a buffer is exported on the direct path already.
    fn is_direct(&self, buffer: &Arc<Mutex<SharedBuffer>>) -> bool {
        self.exports.iter().any(|local| match &local.direct {
            Some(DirectMemory::Buffer(other)) => Arc::ptr_eq(other, buffer),
            _ => false,
        })
    }

    /// Takes an export back, at once: packets for it are refused from here on, and memory that importers have mapped is
    /// replaced in this process by a copy, so that they are left with an orphan (DESIGN's garbage page; UTLB §4.2).
    ///
    /// # Errors
    /// When there is no such export, or no memory for the copy; in the latter case packets are refused all the same.
    pub fn unexport(&mut self, id: ExportId) -> Result<(), DriverError> {
        self.nic.revoke(id)?;
        self.vmmc.withdraw(id);
        let Some(index) = self.exports.iter().position(|local| local.id == id) else {
            return Ok(());
        };
        let mut local = self.exports.remove(index);
        self.leave_landing(id, local.landing.take());
        for range in &local.held {
            self.pages.release_export(*range);
            self.trace_pages(TraceOp::Unexport, *range);
        }
        let mut moved = Ok(());
        if let Some(DirectMemory::Buffer(buffer)) = &local.direct {
            // Importers may have kept the memory, whatever they say.
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            moved = buffer.revoke();
        }
        self.poll();
        Ok(moved?)
    }

    /// Lets a buffer of this process stand for an export, or ends that (UTLB §4.1, transfer redirection): stores land there and
    /// fetches read there. What is under way when this is called uses either. The buffer is kept until no fetch reads it.
    ///
    /// # Errors
    /// No such export; one that importers have mapped; a buffer shorter than the export; the limit on pinned pages.
    pub fn redirect(
        &mut self,
        id: ExportId,
        to: Option<&Arc<Mutex<SharedBuffer>>>,
    ) -> Result<(), DriverError> {
        let index = self
            .exports
            .iter()
            .position(|local| local.id == id)
            .ok_or(mapwire_nic::NicError::UnknownExport(id.0))?;
        let local = &self.exports[index];
        if local.direct.is_some() {
            return Err(DriverError::RedirectsDirect);
        }
        let (landing, held) = match to {
            None => (None, None),
            Some(buffer) => {
                let (address, length) = {
                    let memory = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                    (memory.as_ptr() as u64, memory.len() as u64)
                };
                if length < local.length {
                    return Err(DriverError::ShortLanding {
                        landing_bytes: length,
                        export_bytes: local.length,
                    });
                }
                let range = PageRange::covering(address, length)?;
                self.pages.hold_export(&mut self.nic, range)?;
                let held = HeldLanding {
                    range,
                    _buffer: Arc::clone(buffer),
                };
                (Some(Landing { address, length }), Some(held))
            }
        };
        if let Err(error) = self.nic.redirect(id, landing) {
            if let Some(held) = held {
                self.pages.release_export(held.range);
            }
            return Err(error.into());
        }
        if let Some(held) = &held {
            self.trace_pages(TraceOp::Export, held.range);
        }
        let old = core::mem::replace(&mut self.exports[index].landing, held);
        self.leave_landing(id, old);
        Ok(())
    }

    /// Gives up a former landing as soon as no fetch reads it.
    fn leave_landing(&mut self, export: ExportId, landing: Option<HeldLanding>) {
        if let Some(landing) = landing {
            self.left_landings.push(LeftLanding { export, landing });
        }
        self.release_landings();
    }

    /// Gives up the former landings that no fetch reads any more.
    pub(crate) fn release_landings(&mut self) {
        let nic = &self.nic;
        let over = |left: &mut LeftLanding| !nic.is_answering(left.export);
        let over: Vec<LeftLanding> = self.left_landings.extract_if(.., over).collect();
        for LeftLanding { landing, .. } in over {
            self.pages.release_export(landing.range);
            self.trace_pages(TraceOp::Unexport, landing.range);
        }
    }

    /// Carries out what the VMMC model asks for.
    pub(crate) fn serve_vmmc(&mut self) -> bool {
        // The clock is read only while an import is under way.
        if let Some(at_ns) = self.vmmc.poll_at()
            && let now_ns = mapwire_host::waiting::now_ns()
            && at_ns <= now_ns
        {
            self.vmmc.handle_time(now_ns);
        }
        let mut worked = false;
        while let Some(action) = self.vmmc.poll_action() {
            worked = true;
            match action {
                Action::Send { to, message } => {
                    debug_assert!(message.len() <= MAX_CONTROL_BYTES, "{}", message.len());
                    let handler = HandlerId::CONTROL;
                    if !self.is_gone(to.node)
                        && !self.nic.send_message(PROCESS, to, handler, &message)
                    {
                        self.handle_lost_control(to.node);
                    }
                }
                Action::PassMemory { to, export, tag } => self.pass_memory(to.node, export, tag),
                Action::Imported { request, grant } => {
                    let revoked = false;
                    self.outcomes
                        .insert(request, Ok(Granted { grant, revoked }));
                }
                Action::Failed { request, error } => {
                    self.drop_passed(request);
                    self.outcomes.insert(request, Err(error));
                }
                Action::Revoked { from, export } => {
                    let from = from.node;
                    self.nic.handle_revoked(from, export);
                    for granted in self.outcomes.values_mut().flatten() {
                        let grant = &granted.grant;
                        granted.revoked |= grant.node() == from && grant.export == export;
                    }
                    if let Some(shared) = &mut self.shared {
                        shared.handle_revoked(from, export);
                    }
                }
                Action::Goodbye { from } => self.handle_peer_gone(from.node),
            }
        }
        worked
    }

    fn pass_memory(&mut self, to: NodeId, export: ExportId, tag: u64) {
        let Some(local) = self.exports.iter().find(|local| local.id == export) else {
            return;
        };
        let Some(memory) = &local.direct else {
            return;
        };
        let job = &mut self.job;
        let mut pass = |memory: BorrowedFd<'_>, status: BorrowedFd<'_>| {
            job.pass(to, tag, memory)?;
            Ok(job.pass(to, tag | STATUS_TAG, status)?)
        };
        let passed = match memory {
            DirectMemory::Views(views) => {
                if let Some(port) = &mut self.shared {
                    port.hear(to);
                }
                pass(views.fd(), views.status().fd())
            }
            DirectMemory::Buffer(buffer) => {
                let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                match buffer.descriptors() {
                    Some((memory, status)) => pass(memory, status),
                    // A direct export shares its buffer first, and keeps it shared while it stands.
                    None => return,
                }
            }
        };
        if let Err(error) = passed {
            // The importer waits for the memory and will time out, naming the export.
            self.log.push(Line::NotPassed { to, export, error });
        }
    }
}

/// Bytes of the message that tells of a message stored on the direct path: export, key, offset, length.
pub const DIRECT_NOTICE_BYTES: usize = 4 + 16 + 8 + 8;

/// Writes such a message.
pub fn direct_notice(
    export: ExportId,
    key: Key,
    offset: u64,
    length: u64,
) -> [u8; DIRECT_NOTICE_BYTES] {
    let mut bytes = [0; DIRECT_NOTICE_BYTES];
    bytes[..4].copy_from_slice(&export.0.to_le_bytes());
    bytes[4..20].copy_from_slice(&key.0);
    bytes[20..28].copy_from_slice(&offset.to_le_bytes());
    bytes[28..].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Takes such a message: one that does not show the export's key, or names a range outside it, is dropped.
pub(crate) fn handle_direct_notice(
    exports: &[LocalExport],
    notices: &mut VecDeque<Notice>,
    log: &mut Log,
    from: NodeId,
    bytes: &[u8],
) {
    let Ok(bytes) = <&[u8; DIRECT_NOTICE_BYTES]>::try_from(bytes) else {
        return;
    };
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let mut id = [0; 4];
    id.copy_from_slice(&bytes[..4]);
    let mut key = [0; 16];
    key.copy_from_slice(&bytes[4..20]);
    let (export, key, offset, length) = (
        ExportId(u32::from_le_bytes(id)),
        Key(key),
        word(20),
        word(28),
    );
    let Some(local) = exports
        .iter()
        .find(|local| local.id == export && local.key == key)
    else {
        log.push(Line::NoticeWithoutKey { from, export });
        return;
    };
    if offset
        .checked_add(length)
        .is_none_or(|end| end > local.length)
    {
        log.push(Line::NoticeOutside {
            from,
            export,
            offset,
            length,
        });
        return;
    }
    if let Some(handler) = &local.handler {
        let notification = Notification {
            from,
            export,
            offset,
            length,
        };
        notices.push_back(Notice {
            handler: Arc::clone(handler),
            notification,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_notice_needs_the_key_and_a_range_within_the_export() {
        let told = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&told);
        let handler: NotificationHandler = Arc::new(move |notification| {
            count.fetch_add(notification.length, Ordering::Relaxed);
        });
        let exports = [LocalExport {
            id: ExportId(9),
            key: Key([3; 16]),
            length: 100,
            handler: Some(handler),
            direct: None,
            held: Vec::new(),
            landing: None,
        }];
        let (mut notices, mut log) = (VecDeque::new(), Log::new());
        let mut take = |bytes: &[u8]| {
            handle_direct_notice(&exports, &mut notices, &mut log, NodeId(1), bytes);
            while let Some(Notice {
                handler,
                notification,
            }) = notices.pop_front()
            {
                handler(notification);
            }
            told.load(Ordering::Relaxed)
        };
        assert_eq!(take(&direct_notice(ExportId(9), Key([3; 16]), 40, 60)), 60);
        assert_eq!(take(&direct_notice(ExportId(9), Key([4; 16]), 40, 60)), 60);
        assert_eq!(take(&direct_notice(ExportId(8), Key([3; 16]), 40, 60)), 60);
        assert_eq!(take(&direct_notice(ExportId(9), Key([3; 16]), 41, 60)), 60);
        assert_eq!(
            take(&direct_notice(ExportId(9), Key([3; 16]), u64::MAX, 60)),
            60
        );
        assert_eq!(take(b"short"), 60);
        let lines: Vec<Line> = core::iter::from_fn(|| log.pop()).collect();
        assert!(
            matches!(
                lines[..],
                [
                    Line::NoticeWithoutKey { .. },
                    Line::NoticeWithoutKey { .. },
                    Line::NoticeOutside { offset: 41, .. },
                    Line::NoticeOutside { .. },
                ]
            ),
            "{lines:?}"
        );
    }
}
