//! Atomic operations of other nodes: authenticated, translated, then handed to the driver in the order of the stores. The answer is that of
//! a fetch of the word. A link passes each packet on once, so a retransmission updates nothing twice.

use mapwire_translation::TranslationDesign;
use mapwire_wire::{Atomic, ExportId, FetchId, Key, NodeId, ProcessId, Refusal, Rights};

use super::Nic;
use crate::actions::{After, AtomicUpdate, BufferId, Dma, Rejection};
use crate::answers::Serving;
use crate::nic::cutting::{Lack, Path};

impl<D: TranslationDesign> Nic<D> {
    /// Handles an atomic operation. False if the host must act first; nothing is changed then.
    pub(crate) fn update(
        &mut self,
        from: NodeId,
        key: &Key,
        (export, offset): (ExportId, u64),
        atomic: Atomic,
        (fetch, reply_key): (FetchId, Key),
        buffer: BufferId,
    ) -> bool {
        if self.drops_on_miss && !self.has_handles(export) && !self.stalled.gives_up(from) {
            return false;
        }
        if !self.answers.has_room(from) {
            // As for a fetch: a peer that asks for more than it may have under way is owed no answer.
            self.reject(from, Rejection::Refused(Refusal::Busy));
            return true;
        }
        let bytes = atomic.width.bytes();
        let located = match self.place_of_word(from, key, export, offset, atomic) {
            Err(reason) => Err(reason),
            Ok((process, address)) => {
                // Aligned, so within one page.
                match self.translate(process, address, bytes as u32, Path::Receive) {
                    Err(Lack::Host) if !self.stalled.gives_up(from) => return false,
                    Ok(piece) if !piece.frame.is_garbage() => Ok((process, piece)),
                    // A word that does not exist has no value to return.
                    _ => Err(Refusal::Busy),
                }
            }
        };
        let (process, piece) = match located {
            Ok(located) => located,
            Err(reason) => {
                self.serve(from, Serving::refusal(fetch, reply_key, export, reason));
                return true;
            }
        };
        let after = After::Updated { from, fetch, reply_key, export, bytes };
        let mut dma = Dma::new(process, buffer, after);
        dma.update = Some(AtomicUpdate { piece, atomic });
        self.dma.push_back(dma);
        true
    }

    /// The process and virtual address of a word that may be updated.
    fn place_of_word(
        &self,
        from: NodeId,
        key: &Key,
        export: ExportId,
        offset: u64,
        atomic: Atomic,
    ) -> Result<(ProcessId, u64), Refusal> {
        let export = self.exports.authenticate(from, export, key, Rights::ALL)?;
        let address = export.address_of(offset, atomic.width.bytes())?;
        if !atomic.width.fits(address) {
            return Err(Refusal::OutOfRange);
        }
        Ok((export.process, address))
    }
}
