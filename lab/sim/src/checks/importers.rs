//! An export is granted to those whom its program has listed, for rights that it gives, and to nobody else.

use mapwire_vmmc::Importers;
use mapwire_wire::{Endpoint, Key, NodeId, Refusal, Rights};

use super::bounds::Instance;
use super::{Violation, violation};
use crate::coverage::Condition;
use crate::random::Random;

/// The user of all programs.
const USER: u32 = 1000;

/// Who may import an export, as its program has it: judged apart from the node's own judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    All,
    /// By number of the node.
    Nodes(Vec<bool>),
    User(u32),
    Token(Key),
}

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

impl Allowed {
    /// Everybody, or some nodes of so many, or a user, or who knows a token.
    pub(crate) fn draw(random: &mut Random, nodes: u16) -> Self {
        match random.below(10) {
            0..6 => Self::All,
            6..8 => Self::Nodes((0..nodes).map(|_| random.chance(60)).collect()),
            8 => Self::User(USER + u32::from(random.chance(30))),
            _ => {
                let mut key = [3; 16];
                key[..8].copy_from_slice(&random.next().to_le_bytes());
                Self::Token(Key(key))
            }
        }
    }

    /// As its node is told.
    pub(crate) fn told(&self) -> Importers {
        match self {
            Self::All => Importers::Job,
            Self::User(user) => Importers::User(*user),
            Self::Token(key) => Importers::Token(*key),
            Self::Nodes(nodes) => {
                let listed = (0..).zip(nodes).filter(|(_, is_listed)| **is_listed);
                Importers::Nodes(listed.map(|(node, _)| NodeId(node)).collect())
            }
        }
    }

    /// Whether a process of a node that shows a token is among them.
    pub(crate) fn includes(&self, node: NodeId, token: Option<Key>) -> bool {
        match self {
            Self::All => true,
            Self::Nodes(nodes) => nodes.get(usize::from(node.0)) == Some(&true),
            Self::User(user) => *user == USER,
            Self::Token(key) => token.is_some_and(|token| token.0 == key.0),
        }
    }
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
