//! Which engine takes which configuration.

use std::sync::Arc;

use mapwire_translation::{CacheError, DesignConfig, PinLimit, Policy};

use super::groups::{Group, Kind, Member, UnderLimit, Unlimited};
use super::{Request, StudyError};
use crate::choosers::Knowledge;
use crate::config::Configuration;
use crate::fast::{Shape, keys};
use crate::replay::Replay;

/// Which fast engines may be used. What a trace does decides: one is tried, and says so if it does not suit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Sets have few enough lines that short keys tell them apart.
    pub keys: bool,
    /// Lines of several pages, of which each is pinned by an operation of its own: not if pages are exported.
    pub lines_of_pages: bool,
    /// Limits on pinned pages, where no page is held for long: not if pages are exported.
    pub limits: bool,
    /// Interrupts: not if there are receives, which go by a table of their own.
    pub interrupts: bool,
    /// Lines that the host fills whole on a miss: not if some memory is absent.
    pub whole_lines: bool,
}

impl Allowed {
    pub const ALL: Allowed =
        Allowed { keys: true, lines_of_pages: true, limits: true, interrupts: true, whole_lines: true };
    pub const NONE: Allowed =
        Allowed { keys: false, lines_of_pages: false, limits: false, interrupts: false, whole_lines: false };

    /// What a group says that needs less to be allowed.
    pub(super) fn less(mut self, change: impl FnOnce(&mut Self)) -> StudyError {
        change(&mut self);
        StudyError::Again(self)
    }
}

/// What the members of a group have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Common {
    Unlimited { line_entries: usize, offset: bool, fresh_misses: bool },
    UnderLimit { offset: bool, limit_pages: u64 },
}

/// Groups for the node of that number, in an order that starts the longest work first.
pub(super) fn groups(
    request: &Request,
    allowed: Allowed,
    node: u16,
    knowledge: &Arc<Knowledge>,
) -> Result<Vec<Group>, StudyError> {
    let mut fast: Vec<(Common, Vec<Member>)> = Vec::new();
    let mut groups = Vec::new();
    for (at, &configuration) in request.configurations.iter().enumerate() {
        if let Err(cause) = configuration.design.checked() {
            return Err(cannot_build(configuration, cause));
        }
        match fast_engine(at, configuration, request.causes, allowed) {
            Some((common, member)) => {
                let takes = |group: &&mut (Common, Vec<Member>)| {
                    group.0 == common && (!request.causes || has_room(&group.1, &member))
                };
                match fast.iter_mut().find(takes) {
                    Some((_, members)) => members.push(member),
                    None => fast.push((common, vec![member])),
                }
            }
            None => {
                let replay =
                    Replay::new(configuration, request.causes).map_err(|cause| cannot_build(configuration, cause))?;
                groups.push(Group::Replayed {
                    at,
                    configuration,
                    replay: Box::new(replay.knowing(node, Arc::clone(knowledge))),
                });
            }
        }
    }
    for (common, members) in fast {
        groups.push(match common {
            Common::Unlimited { offset, fresh_misses, .. } => {
                Group::Unlimited(Box::new(Unlimited::new(members, offset, fresh_misses, request.causes, allowed)))
            }
            Common::UnderLimit { offset, limit_pages } => {
                Group::UnderLimit(Box::new(UnderLimit::new(members, offset, limit_pages, allowed)))
            }
        });
    }
    Ok(groups)
}

/// Whether a group that tells causes takes the member: it knows a few sizes at once.
fn has_room(members: &[Member], member: &Member) -> bool {
    let mut sizes: Vec<_> = members.iter().map(|it| it.entries).collect();
    sizes.push(member.entries);
    sizes.sort_unstable();
    sizes.dedup();
    sizes.len() < keys::KINDS
}

fn cannot_build(configuration: Configuration, cause: CacheError) -> StudyError {
    StudyError::Cache { configuration: Box::new(configuration), cause }
}

fn fast_engine(at: usize, configuration: Configuration, causes: bool, allowed: Allowed) -> Option<(Common, Member)> {
    let rules = configuration.rules;
    let kind = match configuration.design {
        // The host is asked for tables that are paged out.
        DesignConfig::Hierarchical(config) if config.tables_in_memory.is_none() => Kind::Utlb,
        DesignConfig::Interrupt(_) if allowed.interrupts => Kind::Interrupt,
        DesignConfig::DynamicHandle(config) if config.high_water_bytes.is_none() && allowed.whole_lines => {
            Kind::DynamicHandle
        }
        _ => return None,
    };
    // Pinning ahead is only for designs that check.
    if !allowed.keys || configuration.prefetch() > 1 || kind == Kind::Utlb && rules.prepin_pages > 1 {
        return None;
    }
    let cache = configuration.cache()?;
    let member = Member {
        at,
        configuration,
        kind,
        shape: Shape { sets: cache.sets(), ways: cache.ways },
        entries: cache.entries,
        line_entries: cache.line_entries,
    };
    if !member.shape.is_taken() {
        return None;
    }
    let fresh_misses = kind == Kind::Utlb && cache.line_entries > 1;
    let offset = cache.offset_per_process;
    match rules.limit {
        // Where a line may lack pages, only a replay tells the cause of each miss.
        PinLimit::Unlimited if !fresh_misses || allowed.lines_of_pages && !causes => {
            Some((Common::Unlimited { line_entries: cache.line_entries, offset, fresh_misses }, member))
        }
        PinLimit::Pages(limit_pages)
            if kind == Kind::Utlb
                && allowed.limits
                && cache.line_entries == 1
                && rules.policy == Policy::Lru
                && !causes =>
        {
            Some((Common::UnderLimit { offset, limit_pages }, member))
        }
        _ => None,
    }
}
