//! A design's list of open processes.

use crate::design::TranslationError;
use crate::page::Process;
use alloc::vec::Vec;

/// Bytes of NIC memory for each process in the list: location, length and use of its table or directory.
const LIST_ENTRY_BYTES: usize = 32;

/// A list as long as the highest process number that was opened.
#[derive(Clone, Debug)]
pub(crate) struct Opened<T>(Vec<Option<T>>);

impl<T> Opened<T> {
    pub(crate) const fn new() -> Self {
        Opened(Vec::new())
    }

    pub(crate) fn open(&mut self, process: Process, fresh: T) -> Result<(), TranslationError> {
        let at = usize::from(process.0);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        match &mut self.0[at] {
            Some(_) => Err(TranslationError::AlreadyOpen(process)),
            free => {
                *free = Some(fresh);
                Ok(())
            }
        }
    }

    pub(crate) fn close(&mut self, process: Process) -> Result<T, TranslationError> {
        let place = self.0.get_mut(usize::from(process.0));
        let there = place.and_then(Option::take);
        there.ok_or(TranslationError::NotOpen(process))
    }

    #[inline(always)]
    pub(crate) fn get(&self, process: Process) -> Option<&T> {
        self.0.get(usize::from(process.0))?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, process: Process) -> Result<&mut T, TranslationError> {
        let there = self.0.get_mut(usize::from(process.0));
        let there = there.and_then(Option::as_mut);
        there.ok_or(TranslationError::NotOpen(process))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }

    /// Bytes of NIC memory of the list, without the tables themselves.
    pub(crate) fn list_bytes(&self) -> usize {
        self.0.len() * LIST_ENTRY_BYTES
    }
}
