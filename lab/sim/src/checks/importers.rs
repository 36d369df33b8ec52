//! An export is granted to those whom its program has listed, for rights that it gives, and to nobody else.

use mapwire_wire::{Endpoint, Key, NodeId, Refusal, Rights};

use super::allowed::Allowed;
use super::bounds::Instance;
use super::{Violation, violation};
use crate::coverage::Condition;

/// An import that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Of which process, by the workload's number, and which of its exports.
    pub(crate) exporter: usize,
    pub(crate) slot: usize,
    pub(crate) rights: Rights,
    pub(crate) token: Option<Key>,
    pub(crate) at_ns: u64,
}

/// A node was granted an export: it is listed, and has the rights that it asked for.
pub(crate) fn may_have(by: NodeId, asked: &Asked, granted: Rights, instance: &Instance) -> Result<(), Violation> {
    let wrong = |text| Err(violation("importers", text));
    if !instance.importers.includes(by, asked.token) {
        let text = format!("{by} was granted {}, and is not among its {:?}", instance.id, instance.importers);
        return wrong(text);
    }
    if granted != asked.rights || !instance.rights.contains(granted) {
        let (id, has, asked) = (instance.id, instance.rights, asked.rights);
        return wrong(format!("{by} asked {id}, which gives {has}, for {asked}, and was granted {granted}"));
    }
    Ok(())
}

/// A node was refused an export, of which there were these since it asked.
pub(crate) fn is_refused(
    by: NodeId,
    asked: &Asked,
    reason: Refusal,
    mut instances: impl Iterator<Item = Instance>,
) -> Result<Condition, Violation> {
    let found = instances.find_map(|instance| {
        let includes = instance.importers.includes(by, asked.token);
        match (reason, &instance.importers) {
            (Refusal::NotPermitted, Allowed::Nodes(_)) if !includes => Some(Condition::RefusedUnlisted),
            (Refusal::NotPermitted, Allowed::User(_)) if !includes => Some(Condition::RefusedUser),
            (Refusal::NotPermitted, Allowed::Token(_)) if !includes => Some(Condition::RefusedToken),
            (Refusal::NoRight, _) if !instance.rights.contains(asked.rights) => Some(Condition::RefusedRight),
            _ => None,
        }
    });
    found.ok_or_else(|| {
        let text = format!("{by} was refused an export without reason: {reason}; it had asked {asked:?}");
        violation("importers", text)
    })
}

/// At rest: an importer of an export that was revoked has not learnt of it.
pub(crate) fn was_untold(by: Endpoint, instance: &Instance) -> Violation {
    let Endpoint { node, process } = by;
    let text = format!(
        "{node}, {process} is at rest and has not learnt that {} of {} is revoked",
        instance.id, instance.exporter.node
    );
    violation("importers", text)
}
