//! Restriction of importers (VMMC §2: an exporter can restrict possible importers).

use alloc::vec::Vec;

use mapwire_wire::{Key, NodeId};

/// The processes that may import an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Importers {
    /// Every process of the job.
    Job,
    /// Processes of one user, by numeric id as the operating system reports it, never as the peer claims.
    User(u32),
    /// The listed nodes.
    Nodes(Vec<NodeId>),
    /// Any process that shows this token.
    Token(Key),
}

impl Importers {
    /// Whether a process of node `from` and user `uid` that shows `token` may import.
    #[must_use]
    pub fn include(&self, from: NodeId, uid: u32, token: Option<Key>) -> bool {
        match self {
            Self::Job => true,
            Self::User(user) => *user == uid,
            Self::Nodes(nodes) => nodes.contains(&from),
            // `Key` compares in constant time.
            Self::Token(key) => token == Some(*key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn only_those_named_may_import() {
        let node = NodeId(3);
        assert!(Importers::Job.include(node, 0, None));
        assert!(Importers::User(7).include(node, 7, None));
        assert!(!Importers::User(7).include(node, 8, None));
        assert!(Importers::Nodes(vec![NodeId(1), node]).include(node, 0, None));
        assert!(!Importers::Nodes(vec![NodeId(1)]).include(node, 0, None));
        let token = Key([9; 16]);
        assert!(Importers::Token(token).include(node, 0, Some(token)));
        assert!(!Importers::Token(token).include(node, 0, Some(Key([8; 16]))));
        assert!(!Importers::Token(token).include(node, 0, None));
    }
}
