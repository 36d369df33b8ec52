//! State of the connection to one peer.

use std::time::{Duration, Instant};

use mapwire_wire::NodeId;

use super::frame::{Frame, Kind};
use super::sys::{BufferId, FabricAddress};
use crate::shm::PeerCorrupt;

/// How long a peer that was disconnected or cannot be reached may be silent before it is over: what it sent before may still come.
const SILENCE: Duration = Duration::from_millis(100);

/// How often a peer that holds up packets is spoken to, which fails if it is dead.
const KNOCK: Duration = Duration::from_millis(100);

/// How much later than packets behind it a packet may come. A provider that loses a connection may lose what was under way.
const LATE: Duration = Duration::from_secs(5);

/// How long a provider that has room for more may refuse to send to a peer: on a crowded host it takes seconds to connect. Some never say that
/// a dead peer cannot be connected; the broker reports it before.
const UNREACHABLE: Duration = Duration::from_secs(20);

/// A connected peer. Numbers of packets wrap.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: FabricAddress,
    pub(super) stamp: u64,
    /// Its buffers that nothing is sent from.
    pub(super) free: Vec<BufferId>,
    /// A frame without a packet is to be sent.
    pub(super) owes_word: bool,
    pub(super) corrupt: Option<PeerCorrupt>,
    sent: u32,
    /// Packets that the peer has released.
    taken: u32,
    /// Packets that may be under way to it; 0 until it has been heard of.
    window: u32,
    /// Packets that have come, by their number modulo the window.
    arrived: Box<[Option<(BufferId, usize)>]>,
    /// Packets that this end has released, and how many the peer knows of.
    released: u32,
    told: u32,
    /// When this end has released so many packets, the peer wants to hear of it.
    asked: Option<u32>,
    /// This end wants to hear when the peer has released so many packets, and is to ask.
    asks: Option<u32>,
    /// How many it has asked for last.
    has_asked: u32,
    /// Packets that the peer says it has sent.
    promised: u32,
    /// Since when the next packet is missing although the peer has sent it.
    missing: Option<Instant>,
    /// How many packets the peer has sent in all, once it has said farewell.
    total: Option<u32>,
    /// No packet is sent any more.
    is_closed: bool,
    /// No frame is sent any more.
    is_silent: bool,
    is_leaving: bool,
    /// When something last came, of a peer that is closed.
    heard: Option<Instant>,
    /// Since when the provider refuses to send to it.
    refused: Option<Instant>,
    /// When it was last spoken to while packets waited for it.
    knocked: Option<Instant>,
}

impl Peer {
    pub(super) fn new(address: FabricAddress, stamp: u64, window: u16) -> Self {
        Self {
            address,
            stamp,
            free: Vec::new(),
            owes_word: true,
            corrupt: None,
            sent: 0,
            taken: 0,
            window: 0,
            arrived: vec![None; window.into()].into(),
            released: 0,
            told: 0,
            asked: None,
            asks: None,
            has_asked: 0,
            promised: 0,
            missing: None,
            total: None,
            is_closed: false,
            is_silent: false,
            is_leaving: false,
            heard: None,
            refused: None,
            knocked: None,
        }
    }

    /// Whether the peer has been heard of, and takes packets.
    pub(super) fn is_ready(&self) -> bool {
        self.window > 0
    }

    /// Whether nothing more can be sent to it.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether it has room for another packet.
    pub(super) fn has_room(&self) -> bool {
        self.sent.wrapping_sub(self.taken) < self.window
    }

    /// Whether it has released all that was sent.
    pub(super) fn is_drained(&self) -> bool {
        self.sent == self.taken
    }

    /// Asks the peer to say when it has released all that was sent.
    pub(super) fn ask(&mut self) {
        if self.is_ready() && self.has_asked != self.sent {
            self.asks = Some(self.sent);
            self.owes_word = true;
        }
    }

    /// Asks with the next packet, when it has released that.
    pub(super) fn ask_with_next(&mut self) {
        self.asks = Some(self.sent.wrapping_add(1));
    }

    fn asks_about(&self, packets: u32) -> bool {
        self.asks == Some(packets)
    }

    /// The peer wants to hear when this end has released so many packets.
    fn handle_asked(&mut self, packets: u32) {
        // Completions of one peer may change places.
        let is_newer = |asked: u32| packets.wrapping_sub(asked) < 1 << 31;
        if self.asked.is_none_or(is_newer) {
            self.asked = Some(packets);
        }
        self.answer();
    }

    /// Answers the peer's question, if its time has come.
    fn answer(&mut self) {
        if let Some(asked) = self.asked
            && self.released.wrapping_sub(asked) < 1 << 31
        {
            self.asked = None;
            self.owes_word |= !self.is_closed;
        }
    }

    /// Sends the peer a frame every 100 ms while somebody waits for its releases: that fails if it is dead.
    pub(super) fn handle_waited_for(&mut self) {
        let now = Instant::now();
        match self.knocked {
            Some(knocked) if now - knocked < KNOCK => {}
            Some(_) => {
                self.knocked = Some(now);
                self.owes_word |= self.is_ready();
            }
            None => self.knocked = Some(now),
        }
    }

    /// The frame of the next packet, or of a word. `own`: stamp and number of this end.
    pub(super) fn frame(&self, is_packet: bool, own: (u64, NodeId)) -> Frame {
        let kind = match (is_packet, self.is_closed, self.is_leaving) {
            (true, ..) if self.asks_about(self.sent.wrapping_add(1)) => Kind::AskingPacket,
            (true, ..) => Kind::Packet,
            (false, false, _) if self.asks_about(self.sent) => Kind::Question,
            (false, false, _) => Kind::Credit,
            (false, true, false) => Kind::Farewell,
            (false, true, true) => Kind::Leaving,
        };
        let window = self.arrived.len() as u16;
        Frame::new(kind, own, self.sent, self.released, window)
    }

    /// The provider, which has room, refuses to send to it for now.
    pub(super) fn handle_refused(&mut self) {
        let since = *self.refused.get_or_insert_with(Instant::now);
        if since.elapsed() > UNREACHABLE {
            self.handle_lost();
        }
    }

    /// The frame is on its way.
    pub(super) fn handle_transmitted(&mut self, is_packet: bool) {
        self.refused = None;
        self.sent = self.sent.wrapping_add(is_packet.into());
        self.told = self.released;
        self.owes_word = false;
        if self.asks_about(self.sent) {
            self.has_asked = self.sent;
            self.asks = None;
        }
        self.is_silent |= self.is_closed && !is_packet;
    }

    /// Closes this side: a farewell follows, and no packet.
    pub(super) fn close(&mut self) {
        if !self.is_closed {
            self.is_closed = true;
            self.heard = Some(Instant::now());
            self.owes_word = true;
        }
    }

    /// Closes this side without waiting for the peer's farewell.
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
        self.close();
    }

    /// A send to it has failed.
    pub(super) fn handle_lost(&mut self) {
        self.close();
        self.is_silent = true;
    }

    /// Handles a frame. Returns whether its packet stays in the buffer.
    pub(super) fn handle_frame(&mut self, frame: &Frame, slot: BufferId, bytes: usize) -> Result<bool, PeerCorrupt> {
        let kind = frame.kind()?;
        self.refused = None;
        if self.heard.is_some() {
            self.heard = Some(Instant::now());
        }
        self.window = frame.window.get().into();
        // Completions of one peer may change places, so older words may come after newer ones.
        let newly = frame.released.get().wrapping_sub(self.taken);
        if newly <= self.sent.wrapping_sub(self.taken) {
            self.taken = frame.released.get();
            if newly > 0 {
                self.knocked = None;
            }
        } else if newly < 1 << 31 {
            return Err(PeerCorrupt { what: "number of released packets", value: frame.released.get().into() });
        }
        let kept = self.handle_kind(kind, frame, slot, bytes)?;
        let promised = frame.number.get().wrapping_add(kept.into());
        if promised.wrapping_sub(self.promised) < 1 << 31 {
            self.promised = promised;
        }
        self.look_for_next();
        Ok(kept)
    }

    /// Updates since when the next packet is missing.
    fn look_for_next(&mut self) {
        if self.promised == self.released || self.head().is_some() {
            self.missing = None;
        } else if self.missing.is_none() {
            self.missing = Some(Instant::now());
        }
    }

    fn handle_kind(&mut self, kind: Kind, frame: &Frame, slot: BufferId, bytes: usize) -> Result<bool, PeerCorrupt> {
        let ahead = frame.number.get().wrapping_sub(self.released);
        let beyond = |what| PeerCorrupt { what, value: frame.number.get().into() };
        match kind {
            Kind::Packet | Kind::AskingPacket => {
                let is_due = (ahead as usize) < self.arrived.len()
                    && self.total.is_none_or(|total| total.wrapping_sub(frame.number.get()).wrapping_sub(1) < 1 << 31);
                let place = self.place(frame.number.get());
                if !is_due || self.arrived[place].is_some() {
                    return Err(beyond("packet number"));
                }
                self.arrived[place] = Some((slot, bytes));
                if kind == Kind::AskingPacket {
                    self.handle_asked(frame.number.get().wrapping_add(1));
                }
                Ok(true)
            }
            Kind::Credit => Ok(false),
            Kind::Question => {
                self.handle_asked(frame.number.get());
                Ok(false)
            }
            Kind::Farewell | Kind::Leaving => {
                if ahead as usize > self.arrived.len() {
                    return Err(beyond("number of packets in all"));
                }
                self.total = Some(frame.number.get());
                self.close();
                self.is_silent |= kind == Kind::Leaving;
                Ok(false)
            }
        }
    }

    fn place(&self, number: u32) -> usize {
        number as usize % self.arrived.len()
    }

    /// The next packet: its buffer, and the bytes in it.
    pub(super) fn head(&self) -> Option<(BufferId, usize)> {
        self.arrived[self.place(self.released)]
    }

    /// Whether a packet waits, or the end of the peer is to be told.
    pub(super) fn has_input(&self) -> bool {
        self.head().is_some() || self.is_over()
    }

    /// Takes the next packet away and returns its buffer.
    pub(super) fn release(&mut self) -> Option<BufferId> {
        let place = self.place(self.released);
        let (slot, _) = self.arrived[place].take()?;
        self.released = self.released.wrapping_add(1);
        self.look_for_next();
        self.answer();
        let untold = self.released.wrapping_sub(self.told);
        self.owes_word |= untold as usize * 2 >= self.arrived.len();
        Some(slot)
    }

    /// Lets the peer know of all releases.
    pub(super) fn owe_releases(&mut self) {
        self.owes_word |= self.told != self.released && !self.is_closed;
    }

    /// Whether a frame without a packet must be sent. A farewell is the last.
    pub(super) fn may_speak(&self) -> bool {
        self.owes_word && !self.is_silent
    }

    /// The peer's violation of the protocol, or a packet lost for good.
    pub(super) fn fault(&self) -> Option<PeerCorrupt> {
        let is_lost = self.missing.is_some_and(|since| since.elapsed() > LATE);
        let lost = PeerCorrupt { what: "packet lost on its way, with the number", value: self.released.into() };
        self.corrupt.or(is_lost.then_some(lost))
    }

    /// Whether its end can be reported: no packet waits, and none can come.
    pub(super) fn is_over(&self) -> bool {
        if self.fault().is_some() {
            return true;
        }
        let Some(heard) = self.heard else {
            return false;
        };
        self.head().is_none() && (self.total == Some(self.released) || heard.elapsed() > SILENCE)
    }

    /// Buffers of packets that were not released.
    pub(super) fn kept(&self) -> impl Iterator<Item = BufferId> {
        self.arrived.iter().flatten().map(|&(slot, _)| slot)
    }
}
