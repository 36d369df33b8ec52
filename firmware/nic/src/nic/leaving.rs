//! Removal of exports, imports, processes and peers while transfers are under way.

use alloc::vec::Vec;

use mapwire_translation::{Process as TableOwner, TranslationDesign};
use mapwire_wire::{ExportId, FetchId, Flags, ImportId, NodeId, ProcessId, Refusal};

use super::Nic;
use crate::actions::{After, Completion};
use crate::answers::Serving;
use crate::error::{CommandError, NicError};
use crate::exports::Export;
use crate::fetches::Fate;
use crate::imports::{Import, RefusedStores};
use crate::processes::Long;
use crate::transmit::{Source, Transmit, Work};

impl<D: TranslationDesign> Nic<D> {
    /// Removes an export at once: from here on every packet for it is refused, and no memory of it is read for a fetch. Only a
    /// packet that [`poll_transmit`](Self::poll_transmit) has returned, and moves that [`poll_dma`](Self::poll_dma) has returned,
    /// may still use its frames: finish them before the pages are unpinned.
    ///
    /// # Errors
    /// [`NicError::UnknownExport`].
    pub fn revoke(&mut self, export: ExportId) -> Result<Export, NicError> {
        let revoked = self.exports.remove(export.0).ok_or(NicError::UnknownExport(export.0))?;
        self.pinned_late.retain(|late| *late != export);
        self.refuse_queued_replies(export);
        Ok(revoked)
    }

    /// Takes the packets that would read a revoked export out of the queues. A fetch whose last packet is among them is no longer
    /// served, and must be refused here; the others are refused when their turn comes.
    fn refuse_queued_replies(&mut self, export: ExportId) {
        let answers = &mut self.answers;
        self.outbound.retain(|transmit| {
            if transmit.work() != (Work::Reply { export }) {
                return true;
            }
            let header = &transmit.header;
            if header.flags().contains(Flags::LAST) {
                let fetch = FetchId(header.message.get());
                let refusal = Serving::refusal(fetch, header.key, export, Refusal::Revoked);
                // The peer waits for this answer, so it has fewer other fetches than it may have.
                answers.serve(transmit.to, refusal);
            }
            false
        });
    }

    /// Whether an answer to a fetch from this export is under way, and so reads its memory or that of a former landing.
    #[must_use]
    pub fn is_answering(&self, export: ExportId) -> bool {
        self.answers.is_serving(export) || self.outbound.is_queued(Work::Reply { export })
    }

    /// Takes the record of sends by an import that were dropped, and starts a new one.
    pub fn take_refused(&mut self, id: ImportId) -> RefusedStores {
        let import = self.imports.get_mut(id.0);
        import.map_or_else(RefusedStores::default, |import| core::mem::take(&mut import.refused))
    }

    /// Removes an import. A long send that uses it is still finished.
    pub fn release(&mut self, id: ImportId) -> Option<Import> {
        self.imports.remove(id.0)
    }

    /// The exporter has revoked `export`: marks the imports of it, and returns their ids. Commands under way that use them fail.
    pub fn handle_revoked(&mut self, from: NodeId, export: ExportId) -> Vec<ImportId> {
        let ids = self.imports.ids_where(|import| import.node == from && import.export == export);
        for &id in &ids {
            if let Some(import) = self.imports.get_mut(id) {
                import.revoked = true;
            }
        }
        let of_export = |long: &Long| long.peer() == from && long.import().1 == export;
        let using: Vec<ProcessId> = self.processes.with_long(of_export).collect();
        for process in using {
            let long = self.processes.get(process).and_then(|state| state.long());
            if let Some((import, _)) = long.map(Long::import) {
                self.give_up(process, CommandError::Revoked(import));
            }
        }
        ids.into_iter().map(ImportId).collect()
    }

    /// Fails the long command of a process.
    pub(crate) fn give_up(&mut self, process: ProcessId, error: CommandError) {
        if let Some(long) = self.end_long(process) {
            let completion = Some(long.completion());
            self.completions.push_back(Completion::Failed {
                process,
                completion,
                error,
                sent_bytes: long.sent_bytes(),
            });
        }
    }

    /// Ends the long command of a process, and takes back its chunks that wait: their memory is the process's again. If the peer
    /// has seen the start of a message, it learns that nothing more follows.
    fn end_long(&mut self, process: ProcessId) -> Option<Long> {
        let long = self.processes.end(process)?;
        if let Long::Send(sending) = &long
            && sending.begun
            && self.outbound.is_up(sending.to)
        {
            self.outbound.retain(|transmit| {
                let of_process = matches!(transmit.source, Source::Memory { process: of, .. } if of == process);
                !(of_process
                    && transmit.work() == Work::None
                    && transmit.to == sending.to
                    && transmit.header.message.get() == sending.message.0)
            });
            self.close_message(sending.to, sending.key, sending.export, sending.message, sending.offset);
        }
        Some(long)
    }

    /// Removes a process with all its exports, imports and translations. What is under way for it is dropped, and its commands
    /// are not reported; what [`poll_transmit`](Self::poll_transmit) and [`poll_dma`](Self::poll_dma) have returned must be
    /// finished before its pages are unpinned.
    pub fn close_process(&mut self, process: ProcessId) {
        if self.processes.get(process).is_none() {
            return;
        }
        for id in self.exports.ids_where(|entry| entry.process == process) {
            // It exists: it was listed a moment ago.
            let _ = self.revoke(ExportId(id));
        }
        self.end_long(process);
        self.processes.close(process);
        self.outbound.retain(|transmit| disown(transmit, process));
        self.outbound.disown_offered(process);
        for id in self.imports.ids_where(|entry| entry.process == process) {
            self.imports.remove(id);
        }
        for id in self.fetches.ids_where(|entry| entry.process == process) {
            self.abandon_fetch(id);
        }
        self.drop_moves(process);
        self.completions.retain(|completion| completion.process() != Some(process));
        // The table exists: it was opened with the process.
        let _ = self.translation.close(TableOwner(process.0));
    }

    /// Removes the moves of a process that the driver has not taken. Peers that wait for the answer to an atomic operation among
    /// them get a refusal.
    fn drop_moves(&mut self, process: ProcessId) {
        let (answers, outbound) = (&mut self.answers, &self.outbound);
        self.dma.retain(|dma| {
            if dma.process == process
                && let After::Updated { from, fetch, reply_key, export, .. } = dma.after()
                && outbound.is_up(from)
            {
                let refusal = Serving::refusal(fetch, reply_key, export, Refusal::Revoked);
                // There was room when it was accepted.
                answers.serve(from, refusal);
            }
            dma.process != process
        });
    }

    /// Ignores the rest of a fetch, which the peer goes on serving.
    fn abandon_fetch(&mut self, id: u32) {
        let Some(fetch) = self.fetches.get_mut(id) else {
            return;
        };
        let answered = fetch.has_come() || matches!(fetch.fate, Fate::Failed(_));
        fetch.fate = Fate::Abandoned;
        if answered {
            self.fetches.remove(id);
        }
    }

    /// A node is gone for good: what waits for it fails, and so do fetches from it. From here on commands to it fail and packets
    /// from it are dropped; over a lossy transport until a new incarnation of it appears.
    pub fn handle_peer_gone(&mut self, node: NodeId) {
        if let Some(lossy) = self.outbound.lossy_to(node) {
            lossy.close(node);
        }
        self.forget_peer(node);
        // Its link may still owe it an ack.
        self.outbound.wake(node);
    }

    /// Fails what waits for a node that is gone.
    pub(crate) fn forget_peer(&mut self, node: NodeId) {
        let error = CommandError::PeerGone(node);
        let completions = &mut self.completions;
        let was_up = self.outbound.take_down(node, |work| {
            if let Work::Command { process, completion } = work {
                completions.push_back(Completion::Failed {
                    process,
                    completion: Some(completion),
                    error,
                    sent_bytes: u64::MAX,
                });
            }
        });
        if !was_up {
            return;
        }
        if self.is_storing_to(node) {
            self.outbound.note_lost_store(node);
        }
        let to_node = |long: &Long| long.peer() == node;
        let using: Vec<ProcessId> = self.processes.with_long(to_node).collect();
        for process in using {
            self.give_up(process, error);
        }
        for id in self.fetches.ids_where(|fetch| fetch.from == node) {
            self.lose_fetch(id, error);
        }
        self.answers.clear(node);
        self.exports.forget_node(node);
        // Its next packet, if one ever comes, is a new one.
        self.stalled.note_taken(node);
        if let Some(inbound) = self.inbound.get_mut(usize::from(node.0)) {
            inbound.clear();
        }
    }

    fn is_storing_to(&self, node: NodeId) -> bool {
        let stores = |long: &Long| matches!(long, Long::Send(_)) && long.peer() == node;
        self.processes.with_long(stores).next().is_some()
    }

    /// Whether stores to `node` may not have arrived: they wait, are unacked, or were dropped when it went and the program was
    /// not told ([`note_told`](Self::note_told)).
    #[must_use]
    pub fn owes_stores(&self, node: NodeId) -> bool {
        self.outbound.has_stores_for(node) || self.outbound.has_lost_stores(node) || self.is_storing_to(node)
    }

    /// The program has been told that `node` is gone.
    pub fn note_told(&mut self, node: NodeId) {
        self.outbound.note_told(node);
    }

    /// Nothing more of a fetch will arrive.
    fn lose_fetch(&mut self, id: u32, error: CommandError) {
        let Some(fetch) = self.fetches.get_mut(id) else {
            return;
        };
        match fetch.fate {
            // All of it has arrived, and is being moved.
            Fate::Wanted if fetch.has_come() => {}
            Fate::Wanted => self.fail_fetch(FetchId(id), error),
            Fate::Failed(_) => {}
            // Reported when its moves are done.
            Fate::Failing(error) => fetch.fate = Fate::Failed(error),
            Fate::Abandoned => {
                self.fetches.remove(id);
            }
        }
    }
}

/// Detaches a waiting packet from the memory of a closed process. The last packet of a message still goes out, empty: the
/// receiver may have seen the start of the message. False if the packet is not needed.
fn disown(transmit: &mut Transmit, process: ProcessId) -> bool {
    match transmit.source {
        Source::Memory { process: owner, .. } if owner == process => {}
        _ => return true,
    }
    if !transmit.header.flags().contains(Flags::LAST) {
        return false;
    }
    transmit.header.flags = Flags::LAST.0.into();
    transmit.header.length = 0.into();
    transmit.source = Source::EMPTY;
    transmit.set_work(Work::None);
    true
}
