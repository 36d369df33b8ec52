//! Configurations that run together on the lookups of one node.

use super::plan::Allowed;
use super::{DoesNotFit, StudyError};
use crate::config::Configuration;
use crate::counts::{Causes, Counts, PathMisses};
use crate::decode::{Event, HostEvent, Node, Totals};
use crate::fast::{KeyStream, Keys, Levels, Limited, Pins, Shape, Stack};
use crate::replay::Replay;

/// How what a cache misses turns into pins and interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    /// The library pins before a transfer.
    Utlb,
    /// As that, into a table in NIC memory that never misses.
    Table,
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
    Replayed {
        at: usize,
        configuration: Configuration,
        replay: Box<Replay>,
    },
    /// What could not be done.
    Failed,
}

/// Caches of many shapes, nothing ever unpinned for a limit.
#[derive(Debug)]
pub(super) struct Unlimited {
    keys: Keys,
    stream: KeyStream,
    levels: Levels,
    stack: Option<Stack>,
    cold: PathMisses,
    members: Vec<Member>,
    line_entries: usize,
    /// Whether a line may lack pages that were never looked up.
    fresh_misses: bool,
    allowed: Allowed,
}

impl Unlimited {
    pub(super) fn new(
        members: Vec<Member>,
        offset: bool,
        fresh_misses: bool,
        causes: bool,
        allowed: Allowed,
    ) -> Self {
        let shapes: Vec<_> = members.iter().map(|member| member.shape).collect();
        let line_entries = members.first().map_or(1, |member| member.line_entries);
        let least_sets = shapes.iter().map(|shape| shape.sets).min().unwrap_or(1);
        let sizes: Vec<_> = members
            .iter()
            .map(|member| member.entries / line_entries)
            .collect();
        Unlimited {
            keys: Keys::new(line_entries, offset, least_sets),
            stream: KeyStream::default(),
            levels: Levels::new(&shapes, fresh_misses),
            stack: causes.then(|| Stack::new(&sizes)),
            cold: PathMisses::default(),
            members,
            line_entries,
            fresh_misses,
            allowed,
        }
    }

    fn run(&mut self, node: &Node) -> Result<(), StudyError> {
        let some = |kind| self.members.iter().any(|member| member.kind == kind);
        if some(Kind::Interrupt)
            && (node.totals.receive_lookups > 0 || !node.chunk.events.is_empty())
        {
            return Err(StudyError::Again(Allowed {
                interrupts: false,
                ..self.allowed
            }));
        }
        let is_absence = |event: &Event| event.what == HostEvent::Absent;
        if some(Kind::DynamicHandle) && node.chunk.events.iter().any(is_absence) {
            return Err(StudyError::Again(Allowed {
                whole_lines: false,
                ..self.allowed
            }));
        }
        if self.fresh_misses && !node.chunk.events.is_empty() {
            return Err(StudyError::Again(Allowed {
                lines_of_pages: false,
                ..self.allowed
            }));
        }
        if !self.keys.extend(&node.pages) {
            return Err(StudyError::Again(Allowed {
                keys: false,
                ..self.allowed
            }));
        }
        self.keys.stream(&node.chunk, &mut self.stream);
        self.cold += self.stream.cold;
        self.levels.run(&self.stream, self.keys.most_slot());
        if let Some(stack) = &mut self.stack {
            stack.run(if self.line_entries == 1 {
                &node.chunk.lookups
            } else {
                &self.stream.lines
            });
        }
        Ok(())
    }

    fn report(&self, totals: &Totals, sink: &mut Sink<'_>) {
        for member in &self.members {
            let Some(mut misses) = self.levels.misses(member.shape) else {
                continue;
            };
            // The first lookup of a line always misses.
            misses.send_cold = self.cold.send_cold;
            misses.send_other -= self.cold.send_cold;
            misses.receive_cold = self.cold.receive_cold;
            misses.receive_other -= self.cold.receive_cold;
            let counts = Counts {
                lookups: totals.lookups,
                receive_lookups: totals.receive_lookups,
                nic_misses: misses.sum(),
                misses,
                ..Counts::default()
            };
            let counts = match member.kind {
                Kind::Utlb | Kind::Table => Counts {
                    check_misses: totals.known_pages,
                    pins: totals.known_pages,
                    ..counts
                },
                Kind::Interrupt => Counts {
                    interrupts: counts.nic_misses,
                    pins: counts.nic_misses,
                    unpins: counts.nic_misses - self.levels.resident(member.shape).unwrap_or(0),
                    ..counts
                },
                Kind::DynamicHandle => Counts {
                    interrupts: counts.nic_misses,
                    pins: self.cold.sum() * self.line_entries as u64,
                    ..counts
                },
            };
            let causes = self.stack.as_ref().and_then(|stack| {
                let [plain, fresh] = stack.misses(member.entries / member.line_entries)?;
                let associative = plain
                    + if self.fresh_misses {
                        stack.lookups()[1]
                    } else {
                        fresh
                    };
                Some(Causes::new(misses.sum(), self.cold.sum(), associative))
            });
            sink(member.at, counts, causes);
        }
    }
}

/// Caches of many shapes under one limit and LRU.
#[derive(Debug)]
pub(super) struct UnderLimit {
    keys: Keys,
    pins: Pins,
    /// A table has no cache.
    caches: Vec<(Member, Option<Limited>)>,
    stream: KeyStream,
    cold: PathMisses,
    allowed: Allowed,
}

impl UnderLimit {
    pub(super) fn new(
        members: Vec<Member>,
        offset: bool,
        limit_pages: u64,
        allowed: Allowed,
    ) -> Self {
        let least_sets = members
            .iter()
            .map(|member| member.shape.sets)
            .min()
            .unwrap_or(1);
        UnderLimit {
            keys: Keys::new(1, offset, least_sets),
            pins: Pins::new(limit_pages),
            caches: members
                .into_iter()
                .map(|member| {
                    (
                        member,
                        (member.kind != Kind::Table).then(|| Limited::new(member.shape)),
                    )
                })
                .collect(),
            stream: KeyStream::default(),
            cold: PathMisses::default(),
            allowed,
        }
    }

    fn run(&mut self, node: &Node) -> Result<(), StudyError> {
        if !node.chunk.events.is_empty() {
            return Err(StudyError::Again(Allowed {
                limits: false,
                ..self.allowed
            }));
        }
        if !self.keys.extend(&node.pages) {
            return Err(StudyError::Again(Allowed {
                keys: false,
                ..self.allowed
            }));
        }
        if self.keys.has_cold_lines() {
            self.keys.stream(&node.chunk, &mut self.stream);
            self.cold += self.stream.cold;
        }
        let UnderLimit {
            pins, caches, keys, ..
        } = self;
        let configuration = caches[0].0.configuration;
        pins.run(&node.chunk, &node.pages, keys, |steps| {
            let caches = caches.iter_mut().filter_map(|(_, cache)| cache.as_mut());
            caches.for_each(|cache| cache.run(steps, keys.most_slot()));
        })
        .map_err(|cause| StudyError::Limit {
            configuration: Box::new(configuration),
            node: node.number,
            cause: DoesNotFit::fast(&configuration, cause),
        })?;
        Ok(())
    }

    fn report(&self, totals: &Totals, sink: &mut Sink<'_>) {
        let pinned = self.pins.counts();
        for (member, cache) in &self.caches {
            let mut misses = PathMisses::default();
            if let Some(cache) = cache {
                misses = cache.misses();
                misses.send_cold = self.cold.send_cold;
                misses.send_other -= self.cold.send_cold;
                misses.receive_cold = self.cold.receive_cold;
                misses.receive_other -= self.cold.receive_cold;
            }
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
            Group::Replayed {
                configuration,
                replay,
                ..
            } => replay.run(&node.chunk, &node.pages).map_err(|error| {
                let (number, of) = (node.number, Box::new(*configuration));
                match DoesNotFit::replayed(configuration, error, &node.totals) {
                    Ok(cause) => StudyError::Limit {
                        configuration: of,
                        node: number,
                        cause,
                    },
                    Err(cause) => StudyError::Configuration {
                        configuration: of,
                        node: number,
                        cause,
                    },
                }
            }),
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
