//! Messages that come for a process: of the model of exports and imports, of services, and word of messages on the direct path.

use mapwire_nic::Completion;
use mapwire_translation::TranslationDesign;
use mapwire_wire::{Endpoint, ExportId, HandlerId, Key, MAX_CONTROL_BYTES, NodeId, ProcessId};

use super::Node;
use crate::payload::Payload;
use crate::peers::Breach;
use crate::process::is_store_word;
use crate::told::Told;

/// Handler that tells an exporter of a message that was stored on the direct path.
pub const NOTICE_HANDLER: HandlerId = HandlerId(2);

/// Bytes of the message that tells of a message stored on the direct path: export, key, offset, length.
pub const NOTICE_BYTES: usize = 4 + 16 + 8 + 8;

/// Writes such a message.
#[must_use]
pub fn notice(export: ExportId, key: Key, offset: u64, length: u64) -> [u8; NOTICE_BYTES] {
    let mut bytes = [0; NOTICE_BYTES];
    bytes[..4].copy_from_slice(&export.0.to_le_bytes());
    bytes[4..20].copy_from_slice(&key.0);
    bytes[20..28].copy_from_slice(&offset.to_le_bytes());
    bytes[28..].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn read_notice(bytes: &[u8]) -> Option<(ExportId, Key, u64, u64)> {
    let bytes: &[u8; NOTICE_BYTES] = bytes.try_into().ok()?;
    let (export, bytes) = bytes.split_first_chunk()?;
    let (key, bytes) = bytes.split_first_chunk()?;
    let (offset, bytes) = bytes.split_first_chunk()?;
    let length = bytes.first_chunk()?;
    Some((ExportId(u32::from_le_bytes(*export)), Key(*key), u64::from_le_bytes(*offset), u64::from_le_bytes(*length)))
}

impl<D: TranslationDesign> Node<D> {
    /// Takes the message that a completion of the NIC names; what there is to tell of it.
    #[inline]
    fn take_message<P: Payload>(
        &mut self,
        now_ns: &mut impl FnMut() -> u64,
        message: (Endpoint, ProcessId, HandlerId),
        payload: &P,
    ) -> Option<Told> {
        let (from, to, handler) = message;
        let length = payload.len_bytes();
        let short = payload.private();
        let is_short = short.len() == length;
        match handler {
            HandlerId::CONTROL => {
                if length > MAX_CONTROL_BYTES {
                    self.note_breach(Breach::Control);
                } else if self.confinement.is_on() {
                    let copy = |into: &mut [u8]| payload.copy_to_slice(0, into);
                    self.confinement.keep(from, to, length, copy);
                } else {
                    let mut bytes = [0; MAX_CONTROL_BYTES];
                    payload.copy_to_slice(0, &mut bytes[..length]);
                    if !self.take_control(from, to, &bytes[..length]) {
                        self.note_breach(Breach::Control);
                    }
                }
                None
            }
            NOTICE_HANDLER => self.take_notice(from.node, to, short),
            handler => {
                // Taken out while the service looks at it: a service sees its node through its actions only.
                let mut copy = core::mem::take(&mut self.message);
                if !is_short {
                    copy.resize(length, 0);
                    payload.copy_to_slice(0, &mut copy);
                }
                let bytes = if is_short { short } else { &copy };
                let process = self.processes.get_mut(to);
                // A service that is not there has been closed: what was under way for it says nothing any more.
                let taken = process.and_then(|process| process.take_message(now_ns, handler, from, bytes));
                if let Some((taken, asks)) = taken {
                    if taken.is_err() {
                        self.note_breach(Breach::Service);
                    }
                    self.has_actions |= asks;
                }
                self.message = copy;
                None
            }
        }
    }

    /// Takes a control message. False: it is malformed.
    pub(super) fn take_control(&mut self, from: Endpoint, to: ProcessId, bytes: &[u8]) -> bool {
        self.has_actions = true;
        let process = self.processes.get_mut(to);
        let maps = self.peers.maps(from.node);
        process.is_none_or(|process| process.vmmc_mut().handle_control(from, self.uid, maps, bytes).is_ok())
    }

    /// Takes word of a message on the direct path: what does not show the export's key, or names a range outside it, is dropped.
    fn take_notice(&mut self, from: NodeId, to: ProcessId, bytes: &[u8]) -> Option<Told> {
        let (export, key, offset, length) = read_notice(bytes)?;
        let of_process = |entry: &&mapwire_nic::Export| entry.process == to && entry.key == key;
        let Some(entry) = self.nic.exported(export).filter(of_process) else {
            return Some(Told::NoticeWithoutKey { from, export });
        };
        match offset.checked_add(length) {
            Some(end) if end <= entry.length => Some(Told::Notified { process: to, export, from, offset, length }),
            _ => Some(Told::NoticeOutside { from, export, offset, length }),
        }
    }

    /// What a completion of the NIC says to a program or its log. Messages are taken, with `payload`.
    #[inline]
    pub(super) fn told_of<P: Payload>(
        &mut self,
        now_ns: &mut impl FnMut() -> u64,
        completion: Completion,
        payload: &P,
    ) -> Option<Told> {
        match completion {
            Completion::Done { process, completion } if is_store_word(completion) => {
                self.handle_store_done(process, completion, true);
                None
            }
            Completion::Failed { process, completion: Some(completion), .. } if is_store_word(completion) => {
                self.handle_store_done(process, completion, false);
                None
            }
            Completion::Done { process, completion } => {
                self.release(process, completion);
                Some(Told::Done { process, completion })
            }
            Completion::Failed { process, completion, error, sent_bytes } => {
                if let Some(completion) = completion {
                    self.release(process, completion);
                }
                Some(Told::Failed { process, completion, error, sent_bytes })
            }
            Completion::Notification { process, export, from, offset, length } => {
                Some(Told::Notified { process, export, from, offset, length })
            }
            Completion::Message { to, from, handler, .. } => self.take_message(now_ns, (from, to, handler), payload),
            Completion::StoreRefused { from, export, reason, count } => {
                Some(Told::StoresRefused { from, export, reason, count })
            }
            // What a peer sent before it left, and nobody waits for.
            Completion::Rejected { from, .. } if self.peers.is_gone(from) => None,
            Completion::Rejected { from, reason } => {
                if let Some(breach) = Breach::of(&reason) {
                    self.note_breach(breach);
                }
                Some(Told::Rejected { from, reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_reads_back_as_it_was_written_and_other_bytes_are_none() {
        let written = notice(ExportId(0x1_0002), Key([7; 16]), 1 << 40, 33);
        let read = read_notice(&written);
        assert_eq!(read, Some((ExportId(0x1_0002), Key([7; 16]), 1 << 40, 33)));
        assert_eq!(read_notice(&written[..NOTICE_BYTES - 1]), None);
        assert_eq!(read_notice(&[0; NOTICE_BYTES + 1]), None);
    }
}
