//! Many configurations on one trace.
//!
//! Configurations that share work are a group: caches of all shapes with the same placement, with unlimited pinned pages or
//! with the same limit. Groups know nothing of each other, and run on all threads that are given. What no fast engine takes is
//! replayed by the firmware's code, a group for each configuration.

mod error;
mod groups;
mod limit;
mod plan;

use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

use mapwire_trace::Block;
use mapwire_translation::DesignConfig;

pub use error::{Allowed, StudyError};

use crate::choosers::{Chooser, Knowledge};
use crate::config::Configuration;
use crate::counts::{Causes, Counts};
use crate::decode::{Decoder, LeftOut, Node, Selection, Totals};
use crate::memory::Footprint;
use crate::pool;
use groups::Group;

/// What a study is to find out. A configuration that cannot do what the trace does is left out of the outcomes, and named in
/// [`Findings::failures`]; so only sends and fetches should count where an application chooses, since exports stay pinned whoever does.
#[derive(Clone, Debug)]
pub struct Request {
    /// The configurations, in the order of the outcomes.
    pub configurations: Vec<Configuration>,
    pub selection: Selection,
    /// Whether NIC misses are to be split by cause.
    pub causes: bool,
    pub threads: usize,
}

impl Request {
    /// Whether a configuration has such a chooser.
    pub(crate) fn has(&self, chooser: Chooser) -> bool {
        let mut all = self.configurations.iter();
        all.any(|it| it.chooser == Some(chooser))
    }
}

/// What one configuration did on one trace, all nodes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub counts: Counts,
    /// NIC misses by cause, if that was asked for and the design has a cache for which it can be told.
    pub causes: Option<Causes>,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.causes = self.causes.zip(other.causes).map(|(mut sum, causes)| {
            sum += causes;
            sum
        });
    }
}

/// A study of a trace while it is read.
#[derive(Debug)]
pub struct Study {
    request: Request,
    allowed: Allowed,
    decoder: Decoder,
    groups: Vec<Vec<Group>>,
    knowledge: Arc<Knowledge>,
    failures: Vec<(usize, String)>,
}

#[derive(Clone, Debug)]
pub struct Findings {
    pub outcomes: Vec<Outcome>,
    /// Each node's number and totals, by number.
    pub nodes: Vec<(u16, Totals)>,
    /// What each node's processes have its NIC translate, in the same order.
    pub footprints: Vec<Footprint>,
    pub records: u64,
    pub left_out: LeftOut,
    /// Configurations that cannot do what the trace does, by their places in the request, and why. Their outcomes mean nothing.
    pub failures: Vec<(usize, String)>,
}

impl Findings {
    /// Totals of all nodes; of processes, the most that a node has.
    pub fn totals(&self) -> Totals {
        self.nodes.iter().fold(Totals::default(), |sum, (_, node)| Totals {
            operations: sum.operations + node.operations,
            lookups: sum.lookups + node.lookups,
            receive_lookups: sum.receive_lookups + node.receive_lookups,
            direct_lookups: sum.direct_lookups + node.direct_lookups,
            cut_transfers: sum.cut_transfers + node.cut_transfers,
            first_touches: sum.first_touches + node.first_touches,
            known_pages: sum.known_pages + node.known_pages,
            exports: sum.exports + node.exports,
            processes: sum.processes.max(node.processes),
        })
    }

    /// Pages of the process that has most.
    pub fn footprint_pages(&self) -> u64 {
        self.footprints.iter().flat_map(|node| node.pages.values().copied()).max().unwrap_or(0)
    }

    /// Bytes of NIC memory that a design takes on the node that needs most; see [`Footprint::nic_bytes`].
    pub fn nic_bytes(&self, design: &DesignConfig) -> Option<u64> {
        self.footprints.iter().map(|node| node.nic_bytes(design)).max().flatten()
    }

    /// Why a configuration, by its place in the request, cannot do what the trace does.
    pub fn failure(&self, at: usize) -> Option<&str> {
        let failure = self.failures.iter().find(|failure| failure.0 == at);
        failure.map(|failure| failure.1.as_str())
    }
}

impl Study {
    /// Of a trace of which nothing is known yet, or which needs what [`StudyError::Again`] said.
    pub fn new(request: Request, allowed: Allowed) -> Result<Self, StudyError> {
        let study = Study {
            decoder: Decoder::new(request.selection),
            groups: Vec::new(),
            knowledge: Arc::default(),
            failures: Vec::new(),
            allowed,
            request,
        };
        // Configurations that cannot be built are found before the trace is read.
        study.plan(0)?;
        Ok(study)
    }

    /// The same of a trace whose future is known, for choosers that go by it.
    #[must_use]
    pub fn knowing(self, knowledge: Arc<Knowledge>) -> Self {
        Study { knowledge, ..self }
    }

    fn plan(&self, node: u16) -> Result<Vec<Group>, StudyError> {
        let Request { configurations, causes, .. } = &self.request;
        plan::groups(configurations, *causes, self.allowed, node, &self.knowledge)
    }

    pub fn take(&mut self, block: &Block<'_>) -> Result<(), StudyError> {
        let mut done = 0;
        while done < block.len() {
            done = self.decoder.take(block, done)?;
            if self.decoder.is_full() {
                self.run_chunk()?;
            }
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Findings, StudyError> {
        self.run_chunk()?;
        let mut outcomes = vec![Outcome::default(); self.request.configurations.len()];
        for outcome in &mut outcomes {
            outcome.causes = self.request.causes.then(Causes::default);
        }
        for (node, groups) in self.decoder.nodes().iter().zip(&self.groups) {
            for group in groups {
                group.report(&node.totals, &mut |at, counts, causes| {
                    outcomes[at] += Outcome { counts, causes };
                });
            }
        }
        let mut nodes: Vec<_> = self.decoder.nodes().iter().collect();
        nodes.sort_unstable_by_key(|node| node.number);
        Ok(Findings {
            outcomes,
            nodes: nodes.iter().map(|node| (node.number, node.totals)).collect(),
            footprints: nodes.iter().map(|node| Footprint::of(&node.pages)).collect(),
            records: self.decoder.records(),
            left_out: self.decoder.left_out(),
            failures: self.failures,
        })
    }

    fn run_chunk(&mut self) -> Result<(), StudyError> {
        while self.groups.len() < self.decoder.nodes().len() {
            let number = self.decoder.nodes()[self.groups.len()].number;
            self.groups.push(self.plan(number)?);
        }
        let nodes = self.decoder.nodes();
        let tasks: Vec<(&Node, &mut Group)> = nodes
            .iter()
            .zip(&mut self.groups)
            .filter(|(node, _)| !node.chunk.lookups.is_empty() || !node.chunk.events.is_empty())
            .flat_map(|(node, groups)| groups.iter_mut().map(move |group| (node, group)))
            .collect();
        let failures = Mutex::new(Vec::new());
        pool::each(self.request.threads, tasks, |(node, group)| match group.run(node) {
            Err(error @ StudyError::Configuration { .. }) => {
                if let Ok(mut failures) = failures.lock() {
                    failures.extend(group.members().into_iter().map(|at| (at, error.to_string())));
                }
                *group = Group::Failed;
                Ok(())
            }
            other => other,
        })?;
        for failure in failures.into_inner().unwrap_or_default() {
            if !self.failures.iter().any(|known| known.0 == failure.0) {
                self.failures.push(failure);
            }
        }
        self.decoder.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
