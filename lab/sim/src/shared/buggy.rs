//! A shared memory that breaks its protocol in one way, to show that the checks find it.

use mapwire_dsm::{Access as Wanted, MAX_MESSAGE_BYTES, Message, PAGE_BYTES, Rank, Views};
use mapwire_node::SharedMemory;
use mapwire_vmmc::service::{Access, Action, Broken, Region, Service};
use mapwire_wire::{Endpoint, NodeId};

use crate::canary::Canary;
use crate::random::Random;

/// Bytes of an encoded write notice; its writer and its first page begin at these offsets.
const NOTICE: usize = 16;
const FIRST_PAGE: usize = 4;
/// Bytes of a small minipage.
const UNIT_BYTES: u64 = 64;
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
    /// Pages of which the manager has told the home to close them, and that are to be protected.
    closing: Vec<u64>,
}

impl Buggy {
    pub(super) fn new(shared: SharedMemory, bug: Option<Canary>, random: Random) -> Self {
        let no_page = shared.dsm().config().pages - 1;
        Self { shared, bug, random, no_page, message: Vec::new(), now_ns: 0, closing: Vec::new() }
    }

    /// Puts another message in the place of the one to be sent.
    fn send_instead(&mut self, message: Message) {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        let length = message.encode(&mut bytes);
        self.message = bytes[..length].to_vec();
    }

    /// True if the request with that number is a prefetch.
    fn is_ahead(&self, number: u16) -> bool {
        number >= self.shared.dsm().config().threads
    }

    /// A store as the bug has it.
    fn change_store(&mut self, region: &mut Region) {
        let end = u64::from(self.no_page + 1) * PAGE_BYTES;
        match Message::parse(&self.message) {
            _ if self.bug == Some(Canary::WideSet) && region.offset + region.bytes < end => {
                region.bytes += UNIT_BYTES.min(end - region.offset - region.bytes);
            }
            Ok((mut message @ Message::Grant { views, .. }, _)) if self.bug == Some(Canary::GrantedOther) => {
                let wider = Views::new(views.mask() | views.mask() << 1);
                if let (Message::Grant { views, .. }, Some(wider), true) = (&mut message, wider, self.random.chance(20))
                {
                    *views = wider;
                    self.send_instead(message);
                }
            }
            _ => {}
        }
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
        if self.bug == Some(Canary::EarlyClosed)
            && let Ok((Message::HomeClose { page, views }, _)) = Message::parse(message)
        {
            self.closing.extend(views.iter().map(|at| u64::from(page) + u64::from(at)));
        }
        match Message::parse(message) {
            Ok((mut granted @ Message::Grant { access: Wanted::Write, thread, .. }, _))
                if self.bug == Some(Canary::GreedyAhead) && self.is_ahead(thread) =>
            {
                if let Message::Grant { access, .. } = &mut granted {
                    *access = Wanted::Read;
                }
                let mut bytes = [0; MAX_MESSAGE_BYTES];
                let length = granted.encode(&mut bytes);
                self.shared.handle_message(now_ns, from, &bytes[..length])
            }
            _ => self.shared.handle_message(now_ns, from, message),
        }
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
                Action::Store { to, mut region, at, message } => {
                    self.message = message.to_vec();
                    self.change_store(&mut region);
                    return Some(Action::Store { to, region, at, message: &self.message });
                }
                Action::StoreChanges { to, region, copy, message } => {
                    self.message = message.to_vec();
                    return Some(Action::StoreChanges { to, region, copy, message: &self.message });
                }
                Action::Fetch { from, region, to } => return Some(Action::Fetch { from, region, to }),
                Action::Change(change) => return Some(Action::Change(change)),
                Action::Protect { region, access } => {
                    let page = region.offset / PAGE_BYTES;
                    let closing = self.closing.iter().position(|&closing| closing == page);
                    if let Some(at) = closing.filter(|_| access == Access::Read) {
                        self.closing.swap_remove(at);
                        continue;
                    }
                    return Some(Action::Protect { region, access });
                }
            };
            self.message = message.to_vec();
            match Message::parse(&self.message) {
                Ok((Message::Fence { number }, _)) if bug == Canary::UnawaitedDiff => {
                    let mut bytes = [0; MAX_MESSAGE_BYTES];
                    let length = Message::FenceAck { number }.encode(&mut bytes);
                    let _ = self.shared.handle_message(self.now_ns, to, &bytes[..length]);
                }
                Ok((Message::HomeClose { page, views }, _)) if bug == Canary::UntoldHome => {
                    let mut bytes = [0; MAX_MESSAGE_BYTES];
                    let length = Message::HomeClosed { page, views }.encode(&mut bytes);
                    let _ = self.shared.handle_message(self.now_ns, to, &bytes[..length]);
                }
                Ok((mut request @ Message::Request { thread, .. }, _))
                    if bug == Canary::GreedyAhead && self.is_ahead(thread) =>
                {
                    if let Message::Request { access, .. } = &mut request {
                        *access = Wanted::Write;
                    }
                    self.send_instead(request);
                    break to;
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
