//! Which engine takes which configuration.

use std::sync::Arc;

use mapwire_translation::{CacheError, DesignConfig, PinLimit, Policy};

use super::error::{Allowed, StudyError};
use super::groups::{Group, Kind, Member, UnderLimit, Unlimited};
use crate::choosers::Knowledge;
use crate::config::Configuration;
use crate::fast::{Shape, keys};
use crate::replay::Replay;

/// What the members of a group have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Common {
    Unlimited { line_entries: usize, offset: bool, fresh_misses: bool },
    UnderLimit { offset: bool, limit_pages: u64 },
}

/// Groups for the node of that number, in an order that starts the longest work first.
pub(super) fn groups(
    configurations: &[Configuration],
    causes: bool,
    allowed: Allowed,
    node: u16,
    knowledge: &Arc<Knowledge>,
) -> Result<Vec<Group>, StudyError> {
    let mut fast: Vec<(Common, Vec<Member>)> = Vec::new();
    let mut groups = Vec::new();
    for (at, &configuration) in configurations.iter().enumerate() {
        if let Err(cause) = configuration.design.checked() {
            return Err(cannot_build(configuration, cause));
        }
        match fast_engine(at, configuration, causes, allowed) {
            Some((common, member)) => {
                let takes =
                    |group: &&mut (Common, Vec<Member>)| group.0 == common && (!causes || has_room(&group.1, &member));
                match fast.iter_mut().find(takes) {
                    Some((_, members)) => members.push(member),
                    None => fast.push((common, vec![member])),
                }
            }
            None => {
                let replay = Replay::new(configuration, causes).map_err(|cause| cannot_build(configuration, cause))?;
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
                Group::Unlimited(Box::new(Unlimited::new(members, offset, fresh_misses, causes, allowed)))
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
