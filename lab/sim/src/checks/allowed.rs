//! Who may import an export.

use mapwire_vmmc::Importers;
use mapwire_wire::{Key, NodeId};

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
