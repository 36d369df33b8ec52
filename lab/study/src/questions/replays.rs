//! Configurations with policies of their own on one trace, by the firmware's own code.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use mapwire_translation::{CacheError, TranslationDesign};

use super::Source;
use super::choosers::{Chooser, ChooserOfProcess};
use super::knowledge::Knowledge;
use crate::config::Configuration;
use crate::counts::Counts;
use crate::decode::{Node, Selection};
use crate::files::FileError;
use crate::replay::Replay;
use crate::study::DoesNotFit;

/// A configuration, and who chooses the pages to unpin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The configuration.
    pub configuration: Configuration,
    /// Who chooses.
    pub chooser: Chooser,
}

impl Member {
    /// A configuration with the policy that it names.
    pub fn new(configuration: Configuration) -> Self {
        Member {
            configuration,
            chooser: Chooser::Configured,
        }
    }
}

/// What a member did, all nodes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Counts.
    pub counts: Counts,
    /// Pages that are fragmented at the end.
    pub fragmented_pages: u64,
}

/// A member on one node; why it ended, if it cannot do what the trace does.
#[derive(Debug)]
struct Run {
    node: usize,
    member: usize,
    configuration: Configuration,
    outcome: Result<Box<Replay>, String>,
}

/// Replays a trace, each member on each node, on so many threads. What a member cannot do is its outcome; the others go on.
///
/// # Errors
/// A trace that cannot be read.
pub fn replays(
    source: &mut impl Source,
    trace: usize,
    selection: Selection,
    members: &[Member],
    knowledge: &Arc<Knowledge>,
    threads: usize,
) -> Result<Vec<Result<Replayed, String>>, FileError> {
    let mut runs: Vec<Run> = Vec::new();
    let mut nodes_known = 0;
    source.pass(trace, selection, &mut |nodes| {
        for (at, node) in nodes.iter().enumerate().skip(nodes_known) {
            runs.extend(members.iter().enumerate().map(|(member, it)| Run {
                node: at,
                member,
                configuration: it.configuration,
                outcome: start(it, node.number, knowledge).map_err(|error| error.to_string()),
            }));
        }
        nodes_known = nodes.len();
        run_chunk(&mut runs, nodes, threads);
        ControlFlow::Continue(())
    })?;
    let mut outcomes = vec![Ok(Replayed::default()); members.len()];
    for run in runs {
        let sum = &mut outcomes[run.member];
        match (sum.as_mut(), run.outcome) {
            (Ok(sum), Ok(replay)) => {
                sum.counts += replay.counts();
                sum.fragmented_pages += replay.design().fragmented_pages();
            }
            (Ok(_), Err(error)) => *sum = Err(error),
            (Err(_), _) => {}
        }
    }
    Ok(outcomes)
}

fn start(
    member: &Member,
    node: u16,
    knowledge: &Arc<Knowledge>,
) -> Result<Box<Replay>, CacheError> {
    let replay = Replay::new(member.configuration, false)?;
    Ok(Box::new(match member.chooser {
        Chooser::Configured => replay,
        chooser => replay.with_policies(Box::new(ChooserOfProcess {
            chooser,
            node,
            knowledge: Arc::clone(knowledge),
        })),
    }))
}

fn run_chunk(runs: &mut [Run], nodes: &[Node], threads: usize) {
    let threads = threads.clamp(1, runs.len().max(1));
    let tasks = Mutex::new(runs.iter_mut());
    let work = || {
        while let Some(run) = tasks.lock().ok().and_then(|mut tasks| tasks.next()) {
            let node = &nodes[run.node];
            if let Ok(replay) = &mut run.outcome
                && let Err(error) = replay.run(&node.chunk, &node.pages)
            {
                let why = match DoesNotFit::replayed(&run.configuration, error, &node.totals) {
                    Ok(error) => error.to_string(),
                    Err(error) => error.to_string(),
                };
                run.outcome = Err(format!("node {}: {why}", node.number));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

/// When the design pins; `None` if it cannot be built.
pub(super) fn pinning(
    design: &mapwire_translation::DesignConfig,
) -> Option<mapwire_translation::Pinning> {
    Some(mapwire_translation::AnyDesign::new(design).ok()?.pinning())
}
