//! Many configurations on one trace.
//!
//! Configurations that share work are a group: caches of all shapes with the same placement, with unlimited pinned pages or
//! with the same limit. Groups know nothing of each other, and run on all threads that are given. What no fast engine takes is
//! replayed by the firmware's code, a group for each configuration.

mod groups;
mod limit;
mod plan;

use std::sync::Mutex;

use mapwire_trace::Block;
use mapwire_translation::CacheError;

pub use limit::DoesNotFit;
pub use plan::Allowed;

use crate::config::Configuration;
use crate::counts::{Causes, Counts};
use crate::decode::{DecodeError, Decoder, Node, Selection, Totals};
use crate::replay::ReplayError;
use groups::Group;

/// What a study is to find out.
#[derive(Clone, Debug)]
pub struct Request {
    /// The configurations, in the order of the outcomes.
    pub configurations: Vec<Configuration>,
    /// Which operations count.
    pub selection: Selection,
    /// Whether NIC misses are to be split by cause.
    pub causes: bool,
    /// Whether a configuration that cannot do what the trace does is left out, and named in [`Findings::failures`]; otherwise the
    /// study ends with the error.
    pub tolerant: bool,
    /// Threads to use at most.
    pub threads: usize,
}

/// What one configuration did on one trace, all nodes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Counts.
    pub counts: Counts,
    /// NIC misses by cause, if that was asked for and the design has a cache for which it can be told.
    pub causes: Option<Causes>,
}

/// Why a study ends without outcomes.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A record that cannot be studied.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A configuration that cannot be built.
    #[error("{configuration}: {cause}")]
    Cache {
        /// The configuration.
        configuration: Box<Configuration>,
        /// What is wrong.
        cause: CacheError,
    },
    /// A configuration that cannot do what the trace does.
    #[error("{configuration} cannot be studied on node {node}: {cause}")]
    Configuration {
        /// The configuration.
        configuration: Box<Configuration>,
        /// Where.
        node: u16,
        /// What is wrong.
        cause: ReplayError,
    },
    /// An operation has more pages than a process may have pinned, or than its table has entries.
    #[error("{configuration} cannot be studied on node {node}: {cause}")]
    Limit {
        /// The configuration.
        configuration: Box<Configuration>,
        /// Where.
        node: u16,
        /// What is wrong.
        cause: DoesNotFit,
    },
    /// The trace does what a fast engine was not made for. To be tried again with less allowed.
    #[error("the trace needs slower engines")]
    Again(Allowed),
}

/// A study of a trace while it is read.
#[derive(Debug)]
pub struct Study {
    request: Request,
    allowed: Allowed,
    decoder: Decoder,
    /// Groups of each node.
    groups: Vec<Vec<Group>>,
    failures: Vec<(usize, String)>,
}

/// What a study found out.
#[derive(Clone, Debug)]
pub struct Findings {
    /// One for each configuration.
    pub outcomes: Vec<Outcome>,
    /// Each node's number and totals, by number.
    pub nodes: Vec<(u16, Totals)>,
    /// Records of the trace.
    pub records: u64,
    /// Configurations that were left out, by their places in the request, and why. Their outcomes mean nothing.
    pub failures: Vec<(usize, String)>,
}

impl Findings {
    /// Totals of all nodes; of processes, the most that a node has.
    pub fn totals(&self) -> Totals {
        self.nodes
            .iter()
            .fold(Totals::default(), |sum, (_, node)| Totals {
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
}

impl Study {
    /// Of a trace of which nothing is known yet, or which needs what [`StudyError::Again`] said.
    ///
    /// # Errors
    /// A configuration that cannot be built.
    pub fn new(request: Request, allowed: Allowed) -> Result<Self, StudyError> {
        let study = Study {
            decoder: Decoder::new(request.selection),
            groups: Vec::new(),
            failures: Vec::new(),
            allowed,
            request,
        };
        // Configurations that cannot be built are found before the trace is read.
        study.plan()?;
        Ok(study)
    }

    fn plan(&self) -> Result<Vec<Group>, StudyError> {
        plan::groups(&self.request, self.allowed)
    }

    /// Takes the records of a block.
    ///
    /// # Errors
    /// [`StudyError`].
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

    /// Ends the study.
    ///
    /// # Errors
    /// [`StudyError`].
    pub fn finish(mut self) -> Result<Findings, StudyError> {
        self.run_chunk()?;
        let mut outcomes = vec![Outcome::default(); self.request.configurations.len()];
        for outcome in &mut outcomes {
            outcome.causes = self.request.causes.then(Causes::default);
        }
        for (node, groups) in self.decoder.nodes().iter().zip(&self.groups) {
            for group in groups {
                group.report(&node.totals, &mut |at, counts, causes| {
                    let sum = &mut outcomes[at];
                    sum.counts += counts;
                    sum.causes = match (sum.causes, causes) {
                        (Some(mut sum), Some(causes)) => {
                            sum += causes;
                            Some(sum)
                        }
                        _ => None,
                    };
                });
            }
        }
        let mut nodes: Vec<_> = self
            .decoder
            .nodes()
            .iter()
            .map(|node| (node.number, node.totals))
            .collect();
        nodes.sort_unstable_by_key(|node| node.0);
        Ok(Findings {
            outcomes,
            nodes,
            records: self.decoder.records(),
            failures: self.failures,
        })
    }

    fn run_chunk(&mut self) -> Result<(), StudyError> {
        while self.groups.len() < self.decoder.nodes().len() {
            self.groups.push(self.plan()?);
        }
        let nodes = self.decoder.nodes();
        let tasks: Vec<(&Node, &mut Group)> = nodes
            .iter()
            .zip(&mut self.groups)
            .filter(|(node, _)| !node.chunk.lookups.is_empty() || !node.chunk.events.is_empty())
            .flat_map(|(node, groups)| groups.iter_mut().map(move |group| (node, group)))
            .collect();
        let threads = self.request.threads.clamp(1, tasks.len().max(1));
        let tasks = Mutex::new(tasks.into_iter());
        let tolerant = self.request.tolerant;
        let failures = Mutex::new(Vec::new());
        let work = || -> Result<(), StudyError> {
            loop {
                let task = tasks.lock().ok().and_then(|mut tasks| tasks.next());
                let Some((node, group)) = task else {
                    return Ok(());
                };
                match group.run(node) {
                    Err(error @ (StudyError::Limit { .. } | StudyError::Configuration { .. }))
                        if tolerant =>
                    {
                        if let Ok(mut failures) = failures.lock() {
                            failures.extend(
                                group
                                    .members()
                                    .into_iter()
                                    .map(|at| (at, error.to_string())),
                            );
                        }
                        *group = Group::Failed;
                    }
                    other => other?,
                }
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut first = work();
            for other in others {
                match other.join() {
                    Ok(outcome) => first = first.and(outcome),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            first
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
