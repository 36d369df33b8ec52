//! Pages that a node has pinned for transfers, and what the NIC asks of the host for them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mapwire_nic::NicError;
use mapwire_translation::{ChooseVictims, Counters, PageRange, PinPages, TranslationDesign};
use mapwire_wire::ProcessId;

use super::Node;
use crate::error::HostErrorOf;

impl<D: TranslationDesign> Node<D> {
    /// Makes the pages of a transfer usable by the NIC, and marks them as in use by the command with completion word `word`, until
    /// that is [over](crate::Told::Done).
    ///
    /// # Errors
    /// Pages that cannot be pinned; the range is not held then.
    #[inline]
    pub fn hold<P: PinPages>(
        &mut self,
        process: ProcessId,
        pinner: &mut P,
        word: u32,
        range: PageRange,
    ) -> Result<(), HostErrorOf<P>> {
        match self.processes.get_mut(process) {
            Some(state) => state.pages_mut().hold(&mut self.nic, pinner, &mut self.trace, word, range),
            None => Err(HostErrorOf::<P>::Nic(NicError::UnknownProcess(process))),
        }
    }

    /// Undoes [`hold`](Self::hold) for a command that was not submitted.
    #[inline]
    pub fn release(&mut self, process: ProcessId, word: u32) {
        if let Some(state) = self.processes.get_mut(process) {
            state.pages_mut().release(&mut self.nic, &mut self.trace, word);
            // A store of a service may wait for the NIC to take a command.
            self.has_actions |= state.is_storing();
        }
    }

    /// Serves what the NIC asks for, and lets it go on; each failure is given to `failed`, and what asked for it meets the garbage
    /// frame. Whether there was anything.
    pub fn serve_misses<P: PinPages>(&mut self, pinner: &mut P, mut failed: impl FnMut(HostErrorOf<P>)) -> bool {
        let mut served = false;
        let mut others = Vec::new();
        while let Some(request) = self.nic.poll_miss() {
            served = true;
            let Some(state) = self.processes.get_mut(ProcessId(request.process().0)) else { continue };
            let outcome = state.pages_mut().serve(&mut self.nic, pinner, &mut self.trace, request, &mut others);
            outcome.err().into_iter().for_each(&mut failed);
            for (owner, page) in others.drain(..) {
                if let Some(state) = self.processes.get_mut(ProcessId(owner.0)) {
                    let outcome = state.pages_mut().host_mut().drop_evicted(&mut self.nic, pinner, page);
                    outcome.err().into_iter().for_each(&mut failed);
                }
            }
        }
        if served {
            self.nic.handle_miss_served();
        }
        served
    }

    /// Whether pages wait for [`reclaim`](Self::reclaim).
    #[inline]
    #[must_use]
    pub fn owes_pages(&self) -> bool {
        self.processes.iter().any(|process| process.pages().host().owes_pages())
    }

    /// Gives back pages whose translations have long left the NIC, where there are more than the high-water mark allows (dynamic
    /// handle lookup §IV-B), and those of former landings.
    pub fn reclaim<P: PinPages>(&mut self, pinner: &mut P, mut failed: impl FnMut(HostErrorOf<P>)) {
        for state in self.processes.iter_mut() {
            state.reclaim(&mut self.nic, &mut self.trace, pinner).err().into_iter().for_each(&mut failed);
        }
    }

    /// Check misses, pins, unpins and pinned pages of a process.
    #[must_use]
    pub fn page_counters(&self, process: ProcessId) -> Counters {
        self.processes.get(process).map_or_else(Counters::default, |state| state.pages().host().counters())
    }

    /// The application chooses what is unpinned from here on; false when pages are pinned already.
    pub fn set_chooser(&mut self, process: ProcessId, chooser: Box<dyn ChooseVictims>) -> bool {
        self.processes.get_mut(process).is_some_and(|state| state.pages_mut().host_mut().set_chooser(chooser))
    }
}
