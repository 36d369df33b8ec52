//! What exporters tell importers of their memory: where the provider reaches it.

use std::collections::{HashMap, VecDeque};

use mapwire_service::{Action, Broken, Service};
use mapwire_transport::ofi::rma::RemoteMemory;
use mapwire_vmmc::Grant;
use mapwire_wire::{Endpoint, ExportId, Key, NodeId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Exports of one node that are kept: as many as it may hold imports of.
const MAX_OF_NODE: usize = 4096;

/// The part of an export that the provider reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The first byte, from the start of the export.
    pub(super) offset: u64,
    pub(super) memory: RemoteMemory,
}

impl Part {
    /// Where `length` bytes from `offset` of the export on lie in the memory, if all of them do.
    pub(super) fn place(&self, offset: u64, length: u64) -> Option<u64> {
        let at = offset.checked_sub(self.offset)?;
        let end = at.checked_add(length)?;
        (end <= self.memory.len_bytes()).then_some(at)
    }
}

/// A message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
struct Announcement {
    /// The export's key: an old number may be given again.
    key: [u8; 16],
    export: U32,
    _zero: U32,
    offset: U64,
    memory: [u8; RemoteMemory::WIRE_BYTES],
}

/// The service: what peers have announced, and what is to be announced to them.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    known: HashMap<(NodeId, ExportId), (Key, Part)>,
    /// Exports kept of each node.
    kept: HashMap<NodeId, usize>,
    due: VecDeque<(Endpoint, Announcement)>,
    /// What an action lends.
    sending: Option<Announcement>,
}

impl Announcements {
    /// Tells an importer of a part of an export.
    pub(super) fn announce(&mut self, to: Endpoint, export: ExportId, key: Key, part: &Part) {
        let announcement = Announcement {
            key: key.0,
            export: export.0.into(),
            _zero: 0.into(),
            offset: part.offset.into(),
            memory: part.memory.to_bytes(),
        };
        self.due.push_back((to, announcement));
    }

    /// What the exporter has announced of an import.
    pub(super) fn part_of(&self, grant: &Grant) -> Option<Part> {
        let (key, part) = self.known.get(&(grant.node(), grant.export))?;
        (*key == grant.key).then_some(*part)
    }
}

impl Service for Announcements {
    fn handle_message(&mut self, _: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        let announcement = Announcement::read_from_bytes(message).map_err(|_| Broken)?;
        let name = (from.node, ExportId(announcement.export.get()));
        let part = Part {
            offset: announcement.offset.get(),
            memory: RemoteMemory::from_bytes(&announcement.memory),
        };
        let kept = self.kept.entry(from.node).or_default();
        if !self.known.contains_key(&name) {
            // Imports of others go by packets.
            if *kept >= MAX_OF_NODE {
                return Ok(());
            }
            *kept += 1;
        }
        self.known.insert(name, (Key(announcement.key), part));
        Ok(())
    }

    fn handle_peer_gone(&mut self, _: u64, node: NodeId) {
        self.known.retain(|(from, _), _| *from != node);
        self.kept.remove(&node);
        self.due.retain(|(to, _)| to.node != node);
    }

    /// The import goes by packets.
    fn handle_lost(&mut self, _: Endpoint) {}

    fn handle_time(&mut self, _: u64) {}

    fn has_actions(&self) -> bool {
        !self.due.is_empty()
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let (to, announcement) = self.due.pop_front()?;
        let message = self.sending.insert(announcement).as_bytes();
        Some(Action::Send { to, message })
    }

    fn poll_at(&self) -> Option<u64> {
        None
    }

    fn needs_time(&self, _: &[u8]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use mapwire_wire::Rights;

    use super::*;

    fn grant(node: u16, export: u32, key: u8) -> Grant {
        Grant {
            from: Endpoint::first_of(NodeId(node)),
            export: ExportId(export),
            key: Key([key; 16]),
            length: 1 << 20,
            rights: Rights::STORE,
            direct: None,
        }
    }

    fn part(offset: u64, bytes: u64) -> Part {
        let mut memory = [7; RemoteMemory::WIRE_BYTES];
        memory[16..].copy_from_slice(&bytes.to_le_bytes());
        Part {
            offset,
            memory: RemoteMemory::from_bytes(&memory),
        }
    }

    /// What `to` hears when `part` is announced.
    fn message(grant: &Grant, part: &Part) -> Vec<u8> {
        let mut exporter = Announcements::default();
        exporter.announce(grant.from, grant.export, grant.key, part);
        match exporter.poll_action() {
            Some(Action::Send { message, .. }) => message.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_an_exporter_announces_is_known_for_its_import_alone() {
        let mut importer = Announcements::default();
        let (told, part) = (grant(3, 9, 1), part(4096, 65536));
        let said = message(&told, &part);
        assert_eq!(importer.handle_message(0, told.from, &said), Ok(()));
        assert_eq!(importer.part_of(&told), Some(part));
        // Another export, one that has the number now, and one of another node.
        for other in [grant(3, 8, 1), grant(3, 9, 2), grant(2, 9, 1)] {
            assert_eq!(importer.part_of(&other), None);
        }
        importer.handle_peer_gone(0, NodeId(3));
        assert_eq!(importer.part_of(&told), None);
    }

    #[test]
    fn a_message_of_another_length_is_none_and_a_flood_is_not_kept() {
        let mut importer = Announcements::default();
        let said = message(&grant(1, 1, 1), &part(0, 4096));
        for wrong in [&said[1..], &[&said[..], &[0]].concat(), &[]] {
            assert_eq!(
                importer.handle_message(0, grant(1, 1, 1).from, wrong),
                Err(Broken)
            );
        }
        for export in 0..2 * MAX_OF_NODE as u32 {
            let grant = grant(1, export, 1);
            let said = message(&grant, &part(0, 4096));
            assert_eq!(importer.handle_message(0, grant.from, &said), Ok(()));
        }
        assert_eq!(importer.known.len(), MAX_OF_NODE);
    }

    #[test]
    fn a_range_that_leaves_the_part_has_no_place() {
        let part = part(4096, 8192);
        assert_eq!(part.place(4096, 8192), Some(0));
        assert_eq!(part.place(5000, 1), Some(904));
        for (offset, length) in [
            (4095, 1),
            (0, 8192),
            (4096, 8193),
            (u64::MAX, 1),
            (5000, u64::MAX),
        ] {
            assert_eq!(part.place(offset, length), None, "{offset} {length}");
        }
    }
}
