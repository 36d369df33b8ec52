//! What is known of a trace before a question is put: who communicates, and with how many pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use mapwire_translation::table::TABLE_ENTRIES;
use mapwire_translation::{
    AnyDesign, CacheError, DesignConfig, Frame, Page, Process, TranslationDesign,
};

use super::Source;
use crate::decode::{Node, Selection};
use crate::files::FileError;

/// One node of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeSurvey {
    /// The distinct pages of each process.
    pub footprints: BTreeMap<Process, u64>,
    /// A page of each second-level table that the processes need: page numbers / 1024 tell tables apart (UTLB §3.3).
    tables: BTreeSet<(Process, u64)>,
    /// Page numbers that have been counted.
    counted: usize,
}

impl NodeSurvey {
    fn count(&mut self, node: &Node) {
        for id in self.counted..node.pages.len() {
            let (process, page) = node.pages.name(id as u32);
            *self.footprints.entry(process).or_default() += 1;
            self.tables.insert((process, page.0 / TABLE_ENTRIES as u64));
        }
        self.counted = node.pages.len();
    }

    /// Bytes of NIC memory that the design takes when all processes of the node are open, as it charges a memory budget; with the
    /// directories of the tables that the trace needs, where directories are in the NIC.
    ///
    /// # Errors
    /// A design that cannot be built.
    pub fn nic_bytes(&self, design: &DesignConfig) -> Result<u64, CacheError> {
        let mut nic = AnyDesign::new(design)?;
        for process in self.footprints.keys() {
            // Each process is there once, so none is open already.
            let _ = nic.open(*process);
        }
        if let DesignConfig::Hierarchical(_) = design {
            for (process, table) in &self.tables {
                // Pages of a trace lie in the address space.
                let _ = nic.install(*process, Page(table * TABLE_ENTRIES as u64), Frame(0));
            }
        }
        Ok(nic.nic_memory().map(|(_, bytes)| bytes as u64).sum())
    }
}

/// One trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// Its name.
    pub name: String,
    /// Where its good part ends, if that is not its end.
    pub damage: Option<String>,
    /// Its nodes by number.
    pub nodes: BTreeMap<u16, NodeSurvey>,
}

impl Survey {
    /// The largest footprint of a process, in pages.
    pub fn footprint_pages(&self) -> u64 {
        let all = self
            .nodes
            .values()
            .flat_map(|node| node.footprints.values());
        all.copied().max().unwrap_or(0)
    }

    /// The most processes that a node has.
    pub fn processes(&self) -> u64 {
        let each = self.nodes.values().map(|node| node.footprints.len() as u64);
        each.max().unwrap_or(0)
    }

    /// Bytes of NIC memory of the node that needs most.
    ///
    /// # Errors
    /// A design that cannot be built.
    pub fn nic_bytes(&self, design: &DesignConfig) -> Result<u64, CacheError> {
        self.nodes
            .values()
            .try_fold(0, |most, node| Ok(most.max(node.nic_bytes(design)?)))
    }
}

/// Surveys all traces.
///
/// # Errors
/// The first trace that cannot be read or has no lookup.
pub fn survey(source: &mut impl Source, selection: Selection) -> Result<Vec<Survey>, FileError> {
    let traces = source.traces();
    let one = |trace| {
        let mut nodes: BTreeMap<u16, NodeSurvey> = BTreeMap::new();
        let passed = source.pass(trace, selection, &mut |chunk| {
            for node in chunk {
                nodes.entry(node.number).or_default().count(node);
            }
            ControlFlow::Continue(())
        })?;
        Ok(Survey {
            name: passed.name,
            damage: passed.damage,
            nodes,
        })
    };
    (0..traces).map(one).collect()
}

/// The largest footprint of a process of all traces, in pages.
pub(super) fn largest_footprint(surveys: &[Survey]) -> u64 {
    surveys
        .iter()
        .map(Survey::footprint_pages)
        .max()
        .unwrap_or(0)
}

/// Warnings of traces of which only a part was good.
pub(super) fn damaged(surveys: &[Survey]) -> Vec<String> {
    surveys
        .iter()
        .filter_map(|survey| survey.damage.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Made, sends};
    use super::*;

    #[test]
    fn footprints_are_of_processes_and_nic_memory_of_the_largest_node() {
        let mut made = Made::new(vec![sends(&[
            (0, 0, 1, 3),
            (0, 1, 1, 1),
            (0, 0, 2, 2),
            (1, 0, 5000, 2),
        ])]);
        let survey = &survey(&mut made, Selection::SEND_SIDE).unwrap()[0];
        assert_eq!((survey.footprint_pages(), survey.processes()), (3, 2));
        let bytes = |text: &str| survey.nic_bytes(&text.parse().unwrap()).unwrap();
        // Two tables of 8 bytes an entry, and a list of two processes.
        assert_eq!(bytes("per-process,entries=64"), 2 * 64 * 8 + 2 * 32);
        assert_eq!(bytes("shared-cache,entries=64"), 64 * 16 + 2 * 32);
        assert!(bytes("hierarchical,entries=64") > bytes("shared-cache,entries=64"));
    }
}
