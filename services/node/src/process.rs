//! What a node keeps of each process behind its NIC.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use mapwire_translation::{PinRules, TranslationDesign};
use mapwire_vmmc::{RequestId, Vmmc, VmmcError};
use mapwire_wire::ProcessId;

use crate::exports::Exports;
use crate::imports::Granted;
use crate::pages::Pages;
use crate::registry::Registry;

/// One process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) vmmc: Vmmc,
    pub(crate) exports: Exports,
    pub(crate) outcomes: BTreeMap<RequestId, Result<Granted, VmmcError>>,
    pub(crate) pages: Pages,
    pub(crate) services: Registry,
}

impl Process {
    pub(crate) fn new(
        id: ProcessId,
        rules: PinRules,
        words: usize,
        design: &impl TranslationDesign,
    ) -> Self {
        Self {
            id,
            vmmc: Vmmc::new(),
            exports: Exports::default(),
            outcomes: BTreeMap::new(),
            pages: Pages::new(id, rules, words, design),
            services: Registry::default(),
        }
    }
}

/// The processes of a node, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Processes(Vec<Option<Process>>);

impl Processes {
    #[inline]
    pub(crate) fn get(&self, id: ProcessId) -> Option<&Process> {
        self.0.get(usize::from(id.0))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.0.get_mut(usize::from(id.0))?.as_mut()
    }

    /// The `at`th of those that are open.
    #[inline]
    pub(crate) fn at_mut(&mut self, at: usize) -> Option<&mut Process> {
        self.iter_mut().nth(at)
    }

    pub(crate) fn insert(&mut self, process: Process) {
        let index = usize::from(process.id.0);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(process);
    }

    pub(crate) fn remove(&mut self, id: ProcessId) -> Option<Process> {
        self.0.get_mut(usize::from(id.0))?.take()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.0.iter().flatten()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.0.iter_mut().flatten()
    }
}
