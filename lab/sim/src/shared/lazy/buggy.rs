//! A lazy shared memory that breaks its protocol in one way, to show that the checks find it.

use mapwire_dsm::{Message, Rank};
use mapwire_node::SharedMemory;
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, NodeId};

use crate::canary::Canary;
use crate::random::Random;

/// Bytes of an encoded write notice; its writer and its first page begin at these offsets.
const NOTICE: usize = 16;
const FIRST_PAGE: usize = 4;
/// The bit of the writer that says that the notice is the last of its interval.
const LAST: u16 = 1 << 15;

/// A shared memory whose messages are changed as the bug has it.
#[derive(Debug)]
pub(super) struct Buggy {
    shared: SharedMemory,
    bug: Option<Canary>,
    random: Random,
    /// The page that a notice names in place of the right one: nothing is there.
    no_page: u32,
    message: Vec<u8>,
    now_ns: u64,
}

impl Buggy {
    pub(super) fn new(shared: SharedMemory, bug: Option<Canary>, random: Random) -> Self {
        let no_page = shared.dsm().config().pages - 1;
        Self { shared, bug, random, no_page, message: Vec::new(), now_ns: 0 }
    }

    pub(super) fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    pub(super) fn shared_mut(&mut self) -> &mut SharedMemory {
        &mut self.shared
    }

    /// Changes the notices of a message, whose fields are so long.
    fn change(message: &mut Vec<u8>, fields: usize, bug: Canary, (me, no_page): (Rank, u32), random: &mut Random) {
        let mut notices = message.split_off(fields);
        for notice in notices.chunks_exact_mut(NOTICE) {
            let writer = u16::from_le_bytes([notice[0], notice[1]]) & !LAST;
            let is_hit = match bug {
                Canary::LostNotice => random.chance(10),
                _ => writer != me,
            };
            if is_hit {
                notice[2..FIRST_PAGE].copy_from_slice(&1u16.to_le_bytes());
                notice[FIRST_PAGE..8].copy_from_slice(&no_page.to_le_bytes());
            }
        }
        message.extend(notices);
    }
}

impl Service for Buggy {
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        self.now_ns = now_ns;
        let is_late = matches!(Message::parse(message), Ok((Message::FenceAck { .. }, _)));
        if self.bug == Some(Canary::UnawaitedDiff) && is_late {
            return Ok(());
        }
        self.shared.handle_message(now_ns, from, message)
    }

    fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId) {
        self.shared.handle_peer_gone(now_ns, node);
    }

    fn handle_lost(&mut self, to: Endpoint) {
        self.shared.handle_lost(to);
    }

    fn handle_fetched(&mut self, offset: u64) {
        self.shared.handle_fetched(offset);
    }

    fn wants_changes(&self) -> bool {
        self.shared.wants_changes()
    }

    fn handle_changes(&mut self, offset: u64, parts: &[(u64, u64)]) {
        self.shared.handle_changes(offset, parts);
    }

    fn spare_bytes(&self) -> u64 {
        self.shared.spare_bytes()
    }

    fn handle_time(&mut self, now_ns: u64) {
        self.shared.handle_time(now_ns);
    }

    fn has_actions(&self) -> bool {
        self.shared.has_actions()
    }

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let Some(bug) = self.bug else { return self.shared.poll_action() };
        let me = self.shared.dsm().config().rank;
        let to = loop {
            let (to, message) = match self.shared.poll_action()? {
                Action::Send { to, message } => (to, message),
                Action::Store { to, region, at, message } => {
                    self.message = message.to_vec();
                    return Some(Action::Store { to, region, at, message: &self.message });
                }
                Action::StoreChanges { to, region, copy, message } => {
                    self.message = message.to_vec();
                    return Some(Action::StoreChanges { to, region, copy, message: &self.message });
                }
                Action::Fetch { from, region, to } => return Some(Action::Fetch { from, region, to }),
                Action::Change(change) => return Some(Action::Change(change)),
                Action::Protect { region, access } => return Some(Action::Protect { region, access }),
            };
            self.message = message.to_vec();
            match Message::parse(&self.message) {
                Ok((Message::Fence { number }, _)) if bug == Canary::UnawaitedDiff => {
                    let mut bytes = [0; mapwire_dsm::MAX_MESSAGE_BYTES];
                    let length = Message::FenceAck { number }.encode(&mut bytes);
                    let _ = self.shared.handle_message(self.now_ns, to, &bytes[..length]);
                }
                Ok((
                    Message::LockToken { .. }
                    | Message::BarrierArrive { .. }
                    | Message::BarrierRelease { .. }
                    | Message::ObjectAnswer { .. }
                    | Message::Notices,
                    payload,
                )) if matches!(bug, Canary::LostNotice | Canary::UnmergedTime) => {
                    let fields = self.message.len() - payload.len();
                    Self::change(&mut self.message, fields, bug, (me, self.no_page), &mut self.random);
                    break to;
                }
                Ok((message, payload)) => {
                    let is_hit = match bug {
                        Canary::UntoldAnswer => matches!(message, Message::ObjectAnswer { .. }),
                        Canary::UntoldCall => matches!(message, Message::ObjectRequest { .. }),
                        _ => false,
                    };
                    let fields = self.message.len() - payload.len();
                    if is_hit {
                        self.message.truncate(fields);
                    }
                    break to;
                }
                Err(_) => break to,
            }
        };
        Some(Action::Send { to, message: &self.message })
    }

    fn poll_at(&self) -> Option<u64> {
        self.shared.poll_at()
    }
}
