//! What exporters and importers tell each other of memory that the provider reaches: where it is, that it is taken back, and that no
//! operation uses it any more.
//!
//! | message | from | says |
//! |---|---|---|
//! | announcement | exporter | where an export is, of which the importer has been granted an import |
//! | withdrawal | exporter | the export is revoked |
//! | confirmation | importer | no operation uses it, and none will |
//!
//! The exporter keeps the memory until all have confirmed: a provider may end the connection of who uses memory that is registered no more.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;

use mapwire_transport::ofi::rma::{Registrar, RemoteMemory};
use mapwire_vmmc::Grant;
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, ExportId, Key, NodeId, Rights};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::exported::{Exported, RegisterError};

/// Announced exports of one node that are kept. Others go by packets.
const MAX_OF_NODE: usize = 4096;

const ANNOUNCEMENT: u32 = 0;
const WITHDRAWAL: u32 = 1;
const CONFIRMATION: u32 = 2;

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
struct Message {
    /// The export's key: its number may be given again.
    key: [u8; 16],
    export: U32,
    kind: U32,
    /// Of an announcement; else 0.
    offset: U64,
    memory: [u8; RemoteMemory::WIRE_BYTES],
}

impl Message {
    fn new(kind: u32, export: ExportId, key: Key) -> Self {
        Self {
            key: key.0,
            export: export.0.into(),
            kind: kind.into(),
            offset: 0.into(),
            memory: [0; RemoteMemory::WIRE_BYTES],
        }
    }
}

/// An export of a peer that this process imports.
#[derive(Debug)]
struct Known {
    key: Key,
    part: Part,
    /// Transfers under way.
    busy: usize,
    is_withdrawn: bool,
}

/// An export, by who has it and its number there.
pub(super) type Name = (NodeId, ExportId);

#[derive(Debug, Default)]
pub(super) struct Announcements {
    exported: Exported,
    known: HashMap<Name, Known>,
    /// How many are known of each node.
    kept: HashMap<NodeId, usize>,
    due: VecDeque<(Endpoint, Message)>,
    /// What an action lends.
    sending: Option<Message>,
}

impl Announcements {
    /// Registers an export that `to` has been granted, if that was not done, and tells it where it is. `memory` is that of which
    /// importers can map `bytes`, which begin at `offset` of the export.
    pub(super) fn announce(
        &mut self,
        registrar: &Registrar,
        to: Endpoint,
        (export, key): (ExportId, Key),
        memory: BorrowedFd<'_>,
        (offset, bytes): (u64, u64),
        rights: Rights,
    ) -> Result<(), RegisterError> {
        let name = (export, key);
        let memory = (self.exported).register(registrar, name, memory, bytes, rights, to)?;
        self.tell(to, export, key, &Part { offset, memory });
        Ok(())
    }

    fn tell(&mut self, to: Endpoint, export: ExportId, key: Key, part: &Part) {
        let announcement = Message {
            offset: part.offset.into(),
            memory: part.memory.to_bytes(),
            ..Message::new(ANNOUNCEMENT, export, key)
        };
        self.due.push_back((to, announcement));
    }

    pub(super) fn withdraw(&mut self, export: ExportId) {
        if let Some((key, holders)) = self.exported.orphan(export) {
            let withdrawal = Message::new(WITHDRAWAL, export, key);
            self.due.extend(holders.into_iter().map(|to| (to, withdrawal)));
        }
    }

    /// What the exporter has announced of an import.
    pub(super) fn part_of(&self, grant: &Grant) -> Option<Part> {
        let known = self.known.get(&(grant.node(), grant.export))?;
        (known.key == grant.key && !known.is_withdrawn).then_some(known.part)
    }

    /// A transfer of an import begins, of which there is a [part](Self::part_of).
    pub(super) fn begin(&mut self, name: Name) {
        if let Some(known) = self.known.get_mut(&name) {
            known.busy += 1;
        }
    }

    pub(super) fn end(&mut self, name: Name) {
        if let Some(known) = self.known.get_mut(&name) {
            known.busy = known.busy.saturating_sub(1);
            if known.busy == 0 && known.is_withdrawn {
                let key = known.key;
                self.forget(name);
                self.confirm(Endpoint::first_of(name.0), name.1, key);
            }
        }
    }

    fn confirm(&mut self, to: Endpoint, export: ExportId, key: Key) {
        self.due.push_back((to, Message::new(CONFIRMATION, export, key)));
    }

    fn forget(&mut self, name: Name) {
        if self.known.remove(&name).is_some()
            && let Some(kept) = self.kept.get_mut(&name.0)
        {
            *kept -= 1;
        }
    }

    fn handle_announcement(&mut self, name: Name, key: Key, part: Part) {
        if let Some(known) = self.known.get_mut(&name) {
            // Of another import of the same export.
            (known.key, known.part) = (key, part);
            return;
        }
        let kept = self.kept.entry(name.0).or_default();
        if *kept < MAX_OF_NODE {
            *kept += 1;
            let known = Known { key, part, busy: 0, is_withdrawn: false };
            self.known.insert(name, known);
        }
    }

    fn handle_withdrawal(&mut self, from: Endpoint, export: ExportId, key: Key) {
        let name = (from.node, export);
        match self.known.get_mut(&name).filter(|known| known.key == key) {
            Some(known) if known.busy > 0 => known.is_withdrawn = true,
            Some(_) => {
                self.forget(name);
                self.confirm(from, export, key);
            }
            None => self.confirm(from, export, key),
        }
    }
}

impl Service for Announcements {
    fn handle_message(&mut self, _: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        let message = Message::read_from_bytes(message).map_err(|_| Broken)?;
        let (export, key) = (ExportId(message.export.get()), Key(message.key));
        match message.kind.get() {
            ANNOUNCEMENT => {
                let part = Part { offset: message.offset.get(), memory: RemoteMemory::from_bytes(&message.memory) };
                self.handle_announcement((from.node, export), key, part);
            }
            WITHDRAWAL => self.handle_withdrawal(from, export, key),
            CONFIRMATION => self.exported.handle_confirmed(from.node, export, key),
            _ => return Err(Broken),
        }
        Ok(())
    }

    fn handle_peer_gone(&mut self, _: u64, node: NodeId) {
        self.known.retain(|(from, _), _| *from != node);
        self.kept.remove(&node);
        self.due.retain(|(to, _)| to.node != node);
        self.exported.handle_gone(node);
    }

    /// The import goes by packets, or the exporter keeps the memory until this process is gone.
    fn handle_lost(&mut self, _: Endpoint) {}

    fn handle_time(&mut self, _: u64) {}

    fn has_actions(&self) -> bool {
        !self.due.is_empty()
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let (to, message) = self.due.pop_front()?;
        let message = self.sending.insert(message).as_bytes();
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
        Part { offset, memory: RemoteMemory::from_bytes(&memory) }
    }

    fn said(service: &mut Announcements) -> Vec<u8> {
        match service.poll_action() {
            Some(Action::Send { message, .. }) => message.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_withdrawal_is_confirmed_once_no_transfer_is_under_way() {
        let mut importer = Announcements::default();
        let told = grant(3, 9, 1);
        let name = (NodeId(3), ExportId(9));
        let announced = message(&told, &part(0, 65536));
        let withdrawal = Message::new(WITHDRAWAL, told.export, told.key);
        let confirmation = Message::new(CONFIRMATION, told.export, told.key);
        // Not known here, then known, then in use.
        for transfers in [0, 0, 2] {
            if transfers > 0 {
                assert_eq!(importer.handle_message(0, told.from, &announced), Ok(()));
            }
            for _ in 0..transfers {
                importer.begin(name);
            }
            let taken = importer.handle_message(0, told.from, withdrawal.as_bytes());
            assert_eq!(taken, Ok(()));
            assert_eq!(importer.part_of(&told), None);
            for _ in 0..transfers {
                assert!(!importer.has_actions());
                importer.end(name);
            }
            assert_eq!(said(&mut importer), confirmation.as_bytes());
            assert!(!importer.has_actions());
            assert_eq!(importer.kept.get(&NodeId(3)).copied().unwrap_or(0), 0);
            importer.handle_message(0, told.from, &announced).unwrap();
            assert!(importer.part_of(&told).is_some());
        }
    }

    /// What `to` hears when `part` is announced.
    fn message(grant: &Grant, part: &Part) -> Vec<u8> {
        let mut exporter = Announcements::default();
        exporter.tell(grant.from, grant.export, grant.key, part);
        said(&mut exporter)
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
            assert_eq!(importer.handle_message(0, grant(1, 1, 1).from, wrong), Err(Broken));
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
        for (offset, length) in [(4095, 1), (0, 8192), (4096, 8193), (u64::MAX, 1), (5000, u64::MAX)] {
            assert_eq!(part.place(offset, length), None, "{offset} {length}");
        }
    }
}
