//! Configurations that run together on the lookups of one node.

use mapwire_translation::DesignConfig;
use mapwire_wire::TraceOp;

use super::error::{Allowed, StudyError};
use crate::config::Configuration;
use crate::counts::{Causes, Counts, PathMisses};
use crate::decode::{Event, Node, Totals};
use crate::fast::{KeyStream, Keys, Levels, Limited, Pins, Shape, Stack};
use crate::handles::HandleReplay;
use crate::replay::{Replay, ReplayError};

/// How what a cache misses turns into pins and interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    /// The library pins before a transfer.
    Utlb,
    /// A miss interrupts the host, which pins; what leaves the cache is unpinned.
    Interrupt,
    /// A miss has the host pin the line, which then stays pinned.
    DynamicHandle,
}

/// A configuration of a group: its place in the request, and its cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) at: usize,
    pub(super) configuration: Configuration,
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    pub(super) entries: usize,
    pub(super) line_entries: usize,
}

/// Takes the outcome of a configuration, by its place in the request.
pub(super) type Sink<'a> = dyn FnMut(usize, Counts, Option<Causes>) + 'a;

#[derive(Debug)]
pub(super) enum Group {
    Unlimited(Box<Unlimited>),
    UnderLimit(Box<UnderLimit>),
    Replayed { at: usize, configuration: Configuration, replay: Box<Replay> },
    Failed,
}

/// Caches of many shapes, nothing ever unpinned for a limit.
#[derive(Debug)]
pub(super) struct Unlimited {
    keys: Keys,
    stream: KeyStream,
    levels: Levels,
    stack: Option<Stack>,
    /// Caches of handles, by their entries.
    handles: Vec<((usize, usize), HandleReplay)>,
    cold: PathMisses,
    members: Vec<Member>,
    line_entries: usize,
    /// Whether a line may lack pages that were never looked up.
    fresh_misses: bool,
    allowed: Allowed,
}

impl Unlimited {
    pub(super) fn new(members: Vec<Member>, offset: bool, fresh_misses: bool, causes: bool, allowed: Allowed) -> Self {
        let shapes: Vec<_> = members.iter().map(|member| member.shape).collect();
        let line_entries = members.first().map_or(1, |member| member.line_entries);
        let least_sets = shapes.iter().map(|shape| shape.sets).min().unwrap_or(1);
        let sizes: Vec<_> = members.iter().map(|member| member.entries / line_entries).collect();
        Unlimited {
            keys: Keys::new(line_entries, offset, least_sets),
            stream: KeyStream::default(),
            levels: Levels::new(&shapes, fresh_misses),
            stack: causes.then(|| Stack::new(&sizes)),
            cold: PathMisses::default(),
            handles: handle_replays(&members),
            members,
            line_entries,
            fresh_misses,
            allowed,
        }
    }

    fn run(&mut self, node: &Node) -> Result<(), StudyError> {
        let some = |kind| self.members.iter().any(|member| member.kind == kind);
        if some(Kind::Interrupt) && (node.totals.receive_lookups > 0 || !node.chunk.events.is_empty()) {
            return Err(self.allowed.less(|it| it.interrupts = false));
        }
        let is_absence = |event: &Event| event.op == TraceOp::Absent;
        if some(Kind::DynamicHandle) && node.chunk.events.iter().any(is_absence) {
            return Err(self.allowed.less(|it| it.whole_lines = false));
        }
        if self.fresh_misses && !node.chunk.events.is_empty() {
            return Err(self.allowed.less(|it| it.lines_of_pages = false));
        }
        if !self.keys.extend(&node.pages) {
            return Err(self.allowed.less(|it| it.keys = false));
        }
        self.keys.stream(&node.chunk, &mut self.stream);
        self.cold += self.stream.cold;
        if let Some(stack) = &mut self.stack {
            self.stream.tell_by(stack, &node.chunk.lookups);
        }
        self.levels.run(&self.stream, self.keys.most_slot());
        for (_, handles) in &mut self.handles {
            handles.run(&node.chunk, &node.pages);
        }
        Ok(())
    }

    fn report(&self, totals: &Totals, sink: &mut Sink<'_>) {
        for member in &self.members {
            let Some(misses) = self.levels.misses(member.shape) else { continue };
            let misses = misses.with_cold(&self.cold);
            let counts = Counts {
                lookups: totals.lookups,
                receive_lookups: totals.receive_lookups,
                nic_misses: misses.sum(),
                misses,
                ..Counts::default()
            };
            let counts = match member.kind {
                Kind::Utlb => Counts { check_misses: totals.known_pages, pins: totals.known_pages, ..counts },
                Kind::Interrupt => Counts {
                    interrupts: counts.nic_misses,
                    pins: counts.nic_misses,
                    unpins: counts.nic_misses - self.levels.resident(member.shape).unwrap_or(0),
                    ..counts
                },
                Kind::DynamicHandle => {
                    let entries = handle_entries(member.configuration.design);
                    let replay = self.handles.iter().find(|it| Some(it.0) == entries);
                    let handles = replay.map(|it| it.1.counts()).unwrap_or_default();
                    Counts {
                        interrupts: counts.nic_misses + handles.buffer_misses + handles.process_misses,
                        buffer_misses: handles.buffer_misses,
                        process_misses: handles.process_misses,
                        pins: self.cold.sum() * self.line_entries as u64,
                        ..counts
                    }
                }
            };
            sink(member.at, counts, self.causes(member, misses.sum()));
        }
    }

    /// The causes of a member's misses. A kind of lookup is the number of sizes in which the stack misses it.
    fn causes(&self, member: &Member, misses: u64) -> Option<Causes> {
        let stack = self.stack.as_ref()?;
        let lines = member.entries / member.line_entries;
        let by_kind = self.levels.misses_by_kind(member.shape)?;
        let conflict = by_kind[..=stack.rank(lines)?].iter().sum();
        // The first lookup of a line misses in every cache.
        let compulsory = self.cold.sum();
        Some(Causes {
            compulsory,
            capacity: misses - compulsory - conflict,
            conflict,
            associative: stack.misses(lines)?,
        })
    }
}

/// Entries of a design's caches of handles: of buffers, and of processes.
fn handle_entries(design: DesignConfig) -> Option<(usize, usize)> {
    match design {
        DesignConfig::DynamicHandle(config) => Some((config.cbh_entries, config.pch_entries)),
        _ => None,
    }
}

/// One for each pair of sizes that a member has.
fn handle_replays(members: &[Member]) -> Vec<((usize, usize), HandleReplay)> {
    let mut all: Vec<((usize, usize), HandleReplay)> = Vec::new();
    for member in members {
        if let Some((cbh, pch)) = handle_entries(member.configuration.design)
            && !all.iter().any(|it| it.0 == (cbh, pch))
            // The design was checked.
            && let Ok(replay) = HandleReplay::new(cbh, pch)
        {
            all.push(((cbh, pch), replay));
        }
    }
    all
}

/// Caches of many shapes under one limit and LRU.
#[derive(Debug)]
pub(super) struct UnderLimit {
    keys: Keys,
    pins: Pins,
    caches: Vec<(Member, Limited)>,
    stream: KeyStream,
    cold: PathMisses,
    allowed: Allowed,
}

impl UnderLimit {
    pub(super) fn new(members: Vec<Member>, offset: bool, limit_pages: u64, allowed: Allowed) -> Self {
        let least_sets = members.iter().map(|member| member.shape.sets).min().unwrap_or(1);
        UnderLimit {
            keys: Keys::new(1, offset, least_sets),
            pins: Pins::new(limit_pages),
            caches: members.into_iter().map(|member| (member, Limited::new(member.shape))).collect(),
            stream: KeyStream::default(),
            cold: PathMisses::default(),
            allowed,
        }
    }

    fn run(&mut self, node: &Node) -> Result<(), StudyError> {
        if !node.chunk.events.is_empty() {
            return Err(self.allowed.less(|it| it.limits = false));
        }
        if !self.keys.extend(&node.pages) {
            return Err(self.allowed.less(|it| it.keys = false));
        }
        if self.keys.has_cold_lines() {
            self.keys.stream(&node.chunk, &mut self.stream);
            self.cold += self.stream.cold;
        }
        let UnderLimit { pins, caches, keys, .. } = self;
        let configuration = caches[0].0.configuration;
        pins.run(&node.chunk, &node.pages, keys, |steps| {
            for (_, cache) in &mut *caches {
                cache.run(steps, keys.most_slot());
            }
        })
        // No pages are held here.
        .map_err(|error| {
            StudyError::replayed(configuration, node.number, &ReplayError::Limit(error), &Totals::default())
        })
    }

    fn report(&self, totals: &Totals, sink: &mut Sink<'_>) {
        let pinned = self.pins.counts();
        for (member, cache) in &self.caches {
            let misses = cache.misses().with_cold(&self.cold);
            let counts = Counts {
                lookups: totals.lookups,
                receive_lookups: totals.receive_lookups,
                check_misses: pinned.check_misses,
                nic_misses: misses.sum(),
                misses,
                pins: pinned.check_misses,
                unpins: pinned.unpins,
                ..Counts::default()
            };
            sink(member.at, counts, None);
        }
    }
}

impl Group {
    /// Places in the request of the configurations that the group has.
    pub(super) fn members(&self) -> Vec<usize> {
        match self {
            Group::Unlimited(group) => group.members.iter().map(|member| member.at).collect(),
            Group::UnderLimit(group) => group.caches.iter().map(|(member, _)| member.at).collect(),
            Group::Replayed { at, .. } => vec![*at],
            Group::Failed => Vec::new(),
        }
    }

    pub(super) fn run(&mut self, node: &Node) -> Result<(), StudyError> {
        match self {
            Group::Unlimited(group) => group.run(node),
            Group::UnderLimit(group) => group.run(node),
            Group::Failed => Ok(()),
            Group::Replayed { configuration, replay, .. } => replay
                .run(&node.chunk, &node.pages)
                .map_err(|error| StudyError::replayed(*configuration, node.number, &error, &node.totals)),
        }
    }

    pub(super) fn report(&self, totals: &Totals, sink: &mut Sink<'_>) {
        match self {
            Group::Unlimited(group) => group.report(totals, sink),
            Group::UnderLimit(group) => group.report(totals, sink),
            Group::Failed => {}
            Group::Replayed { at, replay, .. } => sink(*at, replay.counts(), replay.causes()),
        }
    }
}
