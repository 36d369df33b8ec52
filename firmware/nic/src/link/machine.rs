//! The state machine of a link: datagrams, acks and time in; transmissions and events out.

use alloc::collections::VecDeque;

use mapwire_wire::link::{LinkAck, LinkHeader, LinkKind};

use super::acks::Acks;
use super::cubic::Window;
use super::doubt::{Doubts, Verdict};
use super::greeting::Greeting;
use super::pacing::Pacer;
use super::paths::Paths;
use super::reorder::{Arrival, Reorder};
use super::rtt::Rtt;
use super::sent::{Progress, Sent};
use super::stats::LinkCounters;

/// Transmissions that a timeout may send beyond the window (RFC 9002 §6.2.4). The first in a row sends one: it may be spurious.
const PROBES: u32 = 2;
/// Timeouts in a row after which the window is the smallest.
const COLLAPSE_TIMEOUTS: u32 = 3;
/// Longest interval between two probes, unless one timeout is longer. RFC 6298 (2.5) has 60 s for the Internet. Within a cluster
/// this is short enough that a path that loses half of all packets is not idle for long, and long enough that a node can answer
/// hundreds of peers that probe it at once.
const MOST_BACKOFF_NS: u64 = 50_000_000;
/// Keep-alive requests to a silent peer, from which something is awaited, before it is declared dead.
const SILENCES_A_DEATH: u64 = 8;
/// The timer of a death may be late by this fraction of the time. If it is later, this node was stopped, and perhaps its peer
/// too, or the peer's answer has arrived unread: the peer then has this fraction of the time once more.
const LATES_A_DEATH: u64 = 8;
/// An ack may wait for a packet that carries it for this fraction of the round-trip time, up to the configured delay.
const ACKS_A_ROUND_TRIP: u64 = 8;
const MOST_ACK_DELAY_NS: u64 = 2_000_000;
/// Most pending events: one of each kind.
pub(crate) const MOST_EVENTS: usize = 4;

/// Configuration of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Random number of this incarnation of the node, not 0: the core has no entropy. The same for all its links.
    pub epoch: u64,
    /// Longest datagram of the transport.
    pub max_datagram_bytes: u32,
    /// Paths to the peer, at least 1.
    pub paths: u8,
    /// Most memory of early packets, of all peers together, in longest datagrams: what exceeds it is dropped, and sent again. No peer may
    /// hold more than what remains free, so that peers that never send what is due do not take the others' room.
    pub max_early_datagrams: u16,
    /// Longest wait of an ack for the next packet, unless the round trip is much longer; equal on both sides of a link.
    pub ack_delay_ns: u64,
    /// Round-trip time that timers assume before one is measured.
    pub initial_rtt_ns: u64,
    /// A peer that owes an answer and is silent for so long is dead.
    pub dead_after_ns: u64,
}

impl LinkConfig {
    /// Acks wait for 10 µs, the first round trip is assumed as 100 µs, a peer is dead after 10 s, early packets take up to 4 MiB;
    /// one path.
    #[must_use]
    pub const fn new(epoch: u64, max_datagram_bytes: u32) -> Self {
        // Some 4 MiB.
        let early = (4 << 20) / if max_datagram_bytes < 64 { 64 } else { max_datagram_bytes };
        Self {
            epoch,
            max_datagram_bytes,
            paths: 1,
            max_early_datagrams: if early < 1 << 16 { early as u16 } else { u16::MAX },
            ack_delay_ns: 10_000,
            initial_rtt_ns: 100_000,
            dead_after_ns: 10_000_000_000,
        }
    }

    /// [`max_early_datagrams`](Self::max_early_datagrams), in bytes.
    pub(crate) const fn max_early_bytes(&self) -> usize {
        self.max_early_datagrams as usize * self.max_datagram_bytes as usize
    }
}

/// What follows the header of an outgoing datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    None,
    /// An ack: [`Link::ack`].
    Ack,
    /// The packet with this sequence number: the first that waits, or one sent before.
    Packet {
        sequence: u32,
        /// Whether it was sent before: then its owner already keeps it.
        again: bool,
    },
}

/// A datagram to transmit, on path `header.path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub header: LinkHeader,
    pub body: Body,
}

/// What follows the header of an incoming datagram.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// Nothing: hello, welcome.
    None,
    Ack(&'a LinkAck),
    Packet,
}

/// Why a datagram had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The sender's epoch is unknown; the sender is asked for it.
    UnknownEpoch,
    /// It was meant for a former incarnation of this node.
    FormerSelf,
    /// It answers no open question.
    NotAsked,
    /// It acks what was never sent.
    NeverSent,
    /// Its kind does not match its content.
    Mismatched,
    /// The link is dead.
    Dead,
}

/// Events for the owner of a link, each reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The peer's epoch is known; packets flow.
    Up,
    /// The peer has restarted: everything pending to its former incarnation has failed, and the owner drops all packets of the
    /// link. Packets from here on are for the new incarnation.
    Restarted,
    /// The link switched to this path.
    PathChanged(u8),
    /// Nothing arrived on any path for [`LinkConfig::dead_after_ns`]: everything pending has failed. Only a new incarnation of
    /// the peer is heard from here on: then the link is [`Restarted`](Self::Restarted).
    Dead,
}

/// A link to one peer; `T` is what it keeps of an early packet.
///
/// Times are monotone nanoseconds from any origin. After each call, drain [`poll_kept`](Self::poll_kept), [`poll`](Self::poll),
/// [`poll_over`](Self::poll_over) and [`poll_event`](Self::poll_event), then call [`handle_time`](Self::handle_time) when
/// [`poll_at`](Self::poll_at) says.
#[derive(Debug)]
pub struct Link<T> {
    pub(super) config: LinkConfig,
    first_sequence: u32,
    greeting: Greeting,
    /// Challenge to answer, epoch that sent it, and path.
    welcome: Option<(u64, u64, u8)>,
    /// Whether to ask the peer for the packet that is due.
    asks_again: bool,
    pub(super) sent: Sent,
    reorder: Reorder<T>,
    acks: Acks,
    pub(super) rtt: Rtt,
    /// Whether a packet, not only a greeting, has timed the round trip.
    is_measured: bool,
    pub(super) window: Window,
    pacer: Pacer,
    pub(super) paths: Paths,
    /// Path of the peer's last packet, which acks take: the peer has left any path that loses acks.
    reply_path: u8,
    /// When the next unacked packet counts as lost.
    loss_ns: Option<u64>,
    /// Timeouts since something arrived, and probes that they still allow.
    timeouts: u32,
    probes: u32,
    /// Detects whether the first of these timeouts was spurious.
    doubts: Doubts,
    /// Since when the peer owes an answer.
    owing_since_ns: Option<u64>,
    /// Whether the peer got more time because this node was stopped.
    excused: bool,
    /// Whether the owner waits for something that the peer has promised.
    is_awaiting: bool,
    /// Start of that wait, or when the peer was last heard.
    heard_ns: Option<u64>,
    /// Whether the window or the pacer held back the last poll.
    window_full: bool,
    paced: bool,
    dead: bool,
    events: VecDeque<LinkEvent>,
    pub(super) counters: LinkCounters,
}

impl<T> Link<T> {
    /// A link that has sent nothing. It allocates memory for packets when it is first used.
    #[must_use]
    pub fn new(config: LinkConfig) -> Self {
        Self::with_first_sequence(config, 0)
    }

    /// As [`new`](Self::new), but numbers packets from `first_sequence` on; the peer's link must do the same.
    #[must_use]
    pub fn with_first_sequence(config: LinkConfig, first_sequence: u32) -> Self {
        Self {
            config,
            first_sequence,
            greeting: Greeting::new(config.initial_rtt_ns),
            welcome: None,
            asks_again: false,
            sent: Sent::new(first_sequence),
            reorder: Reorder::new(first_sequence),
            acks: Acks::default(),
            rtt: Rtt::new(config.initial_rtt_ns),
            is_measured: false,
            window: Window::new(config.max_datagram_bytes.into()),
            pacer: Pacer::default(),
            paths: Paths::new(config.paths),
            reply_path: 0,
            loss_ns: None,
            timeouts: 0,
            probes: 0,
            doubts: Doubts::default(),
            owing_since_ns: None,
            excused: false,
            is_awaiting: false,
            heard_ns: None,
            window_full: false,
            paced: false,
            dead: false,
            events: VecDeque::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Sets whether the owner waits for something that the peer has promised. While it does, a silent peer is asked for a sign of
    /// life: it may have restarted and forgotten.
    pub const fn set_awaiting(&mut self, is_awaiting: bool) {
        self.is_awaiting = is_awaiting;
        if !is_awaiting {
            self.heard_ns = None;
        }
    }

    /// Number of packets sent and not acked.
    #[must_use]
    pub fn unacked(&self) -> u32 {
        self.sent.len()
    }

    /// Whether no packet is unacked and no early packet is kept.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sent.len() == 0 && self.reorder.is_empty()
    }

    /// Takes a datagram. `Ok` says what its packet is: call [`handle_taken`](Self::handle_taken) once the next is taken, or
    /// [`keep`](Self::keep) for an early one; until then it counts as not received.
    ///
    /// # Errors
    /// [`Ignored`], if the datagram has no effect on packets.
    pub fn handle_datagram(
        &mut self,
        now_ns: u64,
        header: &LinkHeader,
        received: Received<'_>,
    ) -> Result<Option<Arrival>, Ignored> {
        let greets = matches!(header.kind, LinkKind::Hello | LinkKind::Welcome);
        // A link that was declared dead stays dead; a new incarnation introduces itself.
        let is_known = self.greeting.known() == Some(header.epoch);
        if self.dead && (!greets || is_known) {
            if !is_known {
                self.greeting.begin(now_ns);
            } else if header.kind == LinkKind::Data
                && header.peer_epoch == self.config.epoch
                && self.reorder.arrival(header.sequence) == Arrival::Repeated
            {
                // It was taken while the link lived, and the peer waits for its ack before it leaves.
                self.owe_ack(now_ns, header, false);
            }
            return Err(Ignored::Dead);
        }
        match (header.kind, received) {
            (LinkKind::Hello, Received::None) => {
                self.welcome = Some((header.number, header.epoch, header.path));
                if self.greeting.known() != Some(header.epoch) {
                    self.greeting.begin(now_ns);
                }
                Ok(None)
            }
            (LinkKind::Welcome, Received::None) => self.handle_welcome(now_ns, header),
            (LinkKind::Again, Received::None) => {
                self.check_epochs(now_ns, header)?;
                self.handle_ack(now_ns, header, None)?;
                if header.expected == self.sent.base() {
                    self.sent.handle_asked_again();
                }
                Ok(None)
            }
            (LinkKind::Ack, Received::Ack(ack)) => {
                self.check_epochs(now_ns, header)?;
                self.handle_ack(now_ns, header, Some(ack))?;
                self.counters.acks_received += 1;
                Ok(None)
            }
            (LinkKind::Data, Received::Packet) => {
                self.check_epochs(now_ns, header)?;
                self.handle_ack(now_ns, header, None)?;
                self.reply_path = header.path;
                let arrival = self.reorder.arrival(header.sequence);
                if arrival == Arrival::Repeated {
                    self.counters.repeated += 1;
                    self.owe_ack(now_ns, header, false);
                }
                Ok(Some(arrival))
            }
            _ => Err(Ignored::Mismatched),
        }
    }

    /// The packet of this datagram, [`Arrival::Next`], is taken.
    pub fn handle_taken(&mut self, now_ns: u64, header: &LinkHeader) {
        self.counters.received += 1;
        self.reorder.handle_taken();
        self.owe_ack(now_ns, header, self.reorder.is_empty());
    }

    /// Allocates all memory that it needs as long as nothing is lost: from here on neither [`is_steady`](Self::is_steady)
    /// datagrams nor [`poll`](Self::poll) with [`has_room`](Self::has_room) allocate or free.
    pub fn reserve(&mut self) {
        self.sent.reserve();
        self.acks.reserve();
        self.events.reserve(MOST_EVENTS);
    }

    /// Whether one more transmission can be recorded without allocating.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.sent.has_room()
    }

    /// Whether a datagram with this header leaves the knowledge of the peer unchanged, and leaves no packet to keep.
    #[must_use]
    pub fn is_steady(&self, header: &LinkHeader) -> bool {
        let is_known = self.greeting.known() == Some(header.epoch);
        let is_ours = header.peer_epoch == self.config.epoch;
        let is_kept = || self.reorder.arrival(header.sequence) == Arrival::Early;
        is_known
            && is_ours
            && !self.dead
            && match header.kind {
                LinkKind::Ack => true,
                LinkKind::Data => !is_kept(),
                LinkKind::Hello | LinkKind::Welcome | LinkKind::Again => false,
            }
    }

    /// Whether [`handle_time`](Self::handle_time) at `now_ns` declares the peer dead.
    #[must_use]
    pub fn is_ending(&self, now_ns: u64) -> bool {
        self.dead_ns().is_some_and(|at| at <= now_ns)
    }

    /// Keeps the packet of this datagram, [`Arrival::Early`], until its turn comes.
    pub fn keep(&mut self, now_ns: u64, header: &LinkHeader, item: T) {
        self.counters.received += 1;
        self.reorder.keep(header.sequence, item);
        self.owe_ack(now_ns, header, false);
    }

    fn owe_ack(&mut self, now_ns: u64, header: &LinkHeader, in_order: bool) {
        let delay_ns = self.ack_delay_ns();
        self.acks.handle_arrived(now_ns, header.number, in_order, delay_ns);
    }

    /// Makes a waiting ack due now. Returns whether one was waiting.
    pub fn hasten_ack(&mut self) -> bool {
        self.acks.hasten()
    }

    /// Asks the peer to send the packet that is due at once: it was dropped, and can now be taken.
    pub const fn ask_again(&mut self) {
        self.asks_again = true;
    }

    /// The peer is known to be gone: nothing more is sent to it or taken from it, unless a new incarnation introduces itself.
    ///
    /// What was already taken is still acked: a leaving peer waits for that.
    pub fn close(&mut self) {
        self.sent.reset(self.first_sequence);
        self.reorder.forget_early();
        self.greeting.cancel();
        self.welcome = None;
        self.owing_since_ns = None;
        self.dead = true;
    }

    /// Bytes of heap memory, without those of early packets.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sent.bytes() + self.reorder.bytes()
    }

    fn check_epochs(&mut self, now_ns: u64, header: &LinkHeader) -> Result<(), Ignored> {
        if self.greeting.known() != Some(header.epoch) {
            self.greeting.begin(now_ns);
            return Err(Ignored::UnknownEpoch);
        }
        if header.peer_epoch != self.config.epoch {
            return Err(Ignored::FormerSelf);
        }
        self.doubts.handle_heard(header.number);
        self.handle_heard(now_ns);
        Ok(())
    }

    fn handle_heard(&mut self, now_ns: u64) {
        if self.is_awaiting {
            self.heard_ns = Some(now_ns);
        }
    }

    fn handle_welcome(&mut self, now_ns: u64, header: &LinkHeader) -> Result<Option<Arrival>, Ignored> {
        if header.peer_epoch != self.config.epoch {
            return Err(Ignored::FormerSelf);
        }
        let answer = self.greeting.handle_answer(now_ns, header.number, header.epoch).ok_or(Ignored::NotAsked)?;
        self.handle_heard(now_ns);
        if answer.before == Some(header.epoch) {
            self.handle_progress(now_ns);
            return Ok(None);
        }
        self.dead = false;
        self.start_anew();
        self.rtt.sample(answer.took_ns, 0, 0);
        self.handle_progress(now_ns);
        self.tell(match answer.before {
            None => LinkEvent::Up,
            Some(_) => LinkEvent::Restarted,
        });
        Ok(None)
    }

    /// Forgets everything about a former incarnation of the peer.
    fn start_anew(&mut self) {
        self.sent.reset(self.first_sequence);
        self.reorder = Reorder::new(self.first_sequence);
        self.acks.clear();
        self.rtt = Rtt::new(self.config.initial_rtt_ns);
        self.is_measured = false;
        self.window = Window::new(self.config.max_datagram_bytes.into());
        self.pacer = Pacer::default();
        self.loss_ns = None;
        self.doubts = Doubts::default();
        self.asks_again = false;
    }

    fn tell(&mut self, event: LinkEvent) {
        // Owners that do not poll get the newest event.
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Something arrived from the present incarnation of the peer.
    fn handle_progress(&mut self, now_ns: u64) {
        (self.timeouts, self.probes, self.excused) = (0, 0, false);
        self.paths.handle_progress();
        self.owing_since_ns = (self.sent.len() > 0).then_some(now_ns);
    }

    fn handle_ack(&mut self, now_ns: u64, header: &LinkHeader, ack: Option<&LinkAck>) -> Result<(), Ignored> {
        let progress = self.sent.handle_ack(header.expected, ack).map_err(|_| Ignored::NeverSent)?;
        let Progress { newest, timed, carried_ns, bytes, advanced } = progress;
        let is_news = bytes > 0 || newest.is_some() || advanced;
        if let Some(verdict) = self.doubts.resolve(now_ns, is_news, ack) {
            self.handle_verdict(verdict);
        }
        if !is_news {
            return Ok(());
        }
        if let Some(newest) = newest.filter(|_| timed) {
            let delay_ns = ack.map_or(0, |ack| ack.delay_ns.into());
            let took_ns = now_ns.saturating_sub(newest.sent_ns);
            self.rtt.sample(took_ns, delay_ns, self.ack_delay_ns());
            self.is_measured = true;
        } else if let Some(sent_ns) = carried_ns {
            // Had the peer's packet waited for longer than a fraction of the round trip, an ack would have preceded it.
            self.rtt.sample(now_ns.saturating_sub(sent_ns), 0, 0);
            self.is_measured = true;
        }
        // A packet tells only the expected number, not when it was transmitted; now is after each reduction.
        let sent_ns = newest.map_or(now_ns, |newest| newest.sent_ns);
        if self.window_full {
            self.window.handle_acked(now_ns, bytes, sent_ns, self.rtt.smoothed_ns());
        }
        self.handle_progress(now_ns);
        self.detect_losses(now_ns);
        Ok(())
    }

    /// After a spurious timeout, timers wait for longer and the window is restored.
    fn handle_verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Needed => self.rtt.handle_needed(),
            Verdict::Spurious { took_ns, window_bytes } => {
                self.counters.spurious += 1;
                self.rtt.handle_spurious(took_ns);
                if window_bytes > 0 {
                    self.window.restore(window_bytes);
                }
            }
        }
    }

    fn detect_losses(&mut self, now_ns: u64) {
        let losses = self.sent.detect_losses(now_ns, self.rtt.loss_delay_ns());
        self.loss_ns = losses.next_ns;
        if let Some(sent_ns) = losses.newest_sent_ns {
            self.counters.losses += 1;
            self.window.handle_lost(now_ns, sent_ns);
        }
    }

    /// Time of the next probe (RFC 9002 §6.2.1): it doubles with each timeout in a row, except the first, that of a tail loss
    /// (RFC 8985 §7.2).
    fn probe_ns(&self) -> Option<u64> {
        if self.probes > 0 {
            return None;
        }
        let timeout_ns = self.rtt.timeout_ns().saturating_add(self.ack_delay_ns());
        let backoff_ns = timeout_ns.saturating_mul(1 << self.timeouts.saturating_sub(1).min(30));
        let wait_ns = backoff_ns.min(MOST_BACKOFF_NS.max(timeout_ns));
        Some(self.sent.last()?.sent_ns.saturating_add(wait_ns))
    }

    /// How long an ack waits for a packet that carries it: a fraction of the round trip, which the peer computes alike, so that
    /// busy nodes that answer each other seldom send separate acks.
    fn ack_delay_ns(&self) -> u64 {
        if !self.is_measured {
            // A greeting's round trip proves little: the peers may have just started.
            return self.config.ack_delay_ns;
        }
        let share_ns = self.rtt.smoothed_ns() / ACKS_A_ROUND_TRIP;
        let most_ns = MOST_ACK_DELAY_NS.max(self.config.ack_delay_ns);
        share_ns.clamp(self.config.ack_delay_ns, most_ns)
    }

    fn dead_ns(&self) -> Option<u64> {
        Some(self.owing_since_ns?.saturating_add(self.config.dead_after_ns))
    }

    /// When to ask the peer for a sign of life.
    fn silent_ns(&self) -> Option<u64> {
        let wait_ns = self.config.dead_after_ns / SILENCES_A_DEATH;
        Some(self.heard_ns?.saturating_add(wait_ns.max(1)))
    }

    /// Handles all timers that are due at `now_ns`.
    pub fn handle_time(&mut self, now_ns: u64) {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        if self.dead {
            return;
        }
        let more_ns = self.config.dead_after_ns / LATES_A_DEATH;
        if !self.excused && due(self.dead_ns().map(|at| at.saturating_add(more_ns.max(1)))) {
            self.excused = true;
            self.owing_since_ns = Some(now_ns.saturating_sub(self.config.dead_after_ns - more_ns));
            self.greeting.begin(now_ns);
        } else if due(self.dead_ns()) {
            self.close();
            self.tell(LinkEvent::Dead);
        } else if due(self.silent_ns()) {
            self.greeting.begin(now_ns);
            self.owing_since_ns.get_or_insert(now_ns);
            self.heard_ns = Some(now_ns);
        } else if due(self.loss_ns) {
            self.detect_losses(now_ns);
        } else if due(self.probe_ns()) {
            self.handle_late();
            self.handle_timeout(now_ns);
        }
    }

    fn handle_late(&mut self) {
        if self.timeouts == 0 {
            self.doubts.begin(self.sent.last());
        }
        self.timeouts += 1;
        self.counters.timeouts += 1;
        self.probes = self.timeouts.min(PROBES);
        if self.timeouts == COLLAPSE_TIMEOUTS {
            self.doubts.handle_collapse(self.window.bytes());
            self.window.collapse();
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        if self.paths.handle_timeout(now_ns) {
            // Another path has another round-trip time (RFC 9000 §9.4). The backoff applies to probes of all paths.
            self.rtt = Rtt::new(self.config.initial_rtt_ns);
            self.tell(LinkEvent::PathChanged(self.paths.current()));
        }
    }

    /// The next datagram to transmit; `waiting_bytes` is the size of the datagram for the first packet that was never sent, if
    /// one waits.
    pub fn poll(&mut self, now_ns: u64, waiting_bytes: Option<u32>) -> Option<Datagram> {
        if self.is_awaiting {
            self.heard_ns.get_or_insert(now_ns);
        }
        if let Some((challenge, epoch, path)) = self.welcome.take() {
            return Some(self.datagram(LinkKind::Welcome, challenge, epoch, path, Body::None));
        }
        if !self.dead && self.greeting.known().is_none() && waiting_bytes.is_some() {
            self.greeting.begin(now_ns);
            self.owing_since_ns.get_or_insert(now_ns);
        }
        if self.greeting.next_ns().is_some_and(|at| at <= now_ns) {
            let number = self.sent.take_number();
            let is_awaited = self.owing_since_ns.is_some();
            if let Some(again) = self.greeting.poll(now_ns, number, is_awaited) {
                if again {
                    self.handle_timeout(now_ns);
                }
                return Some(self.datagram(LinkKind::Hello, number, 0, self.paths.current(), Body::None));
            }
        }
        let epoch = self.greeting.known()?;
        // A packet that goes now tells as much as an ack.
        let may_carry = !self.dead
            && self.reorder.is_empty()
            && self.acks.may_be_carried()
            && self.reply_path == self.paths.current();
        if may_carry && let Some(datagram) = self.poll_data(now_ns, epoch, waiting_bytes) {
            return Some(datagram);
        }
        if self.acks.poll(now_ns) {
            self.counters.acks_sent += 1;
            let number = self.sent.take_number();
            let path = self.reply_path;
            return Some(self.datagram(LinkKind::Ack, number, epoch, path, Body::Ack));
        }
        if self.dead {
            return None;
        }
        if core::mem::take(&mut self.asks_again) {
            let number = self.sent.take_number();
            let path = self.reply_path;
            return Some(self.datagram(LinkKind::Again, number, epoch, path, Body::None));
        }
        self.poll_data(now_ns, epoch, waiting_bytes)
    }

    fn poll_data(&mut self, now_ns: u64, epoch: u64, waiting_bytes: Option<u32>) -> Option<Datagram> {
        let (number, sequence, again) = self.poll_packet(now_ns, waiting_bytes)?;
        match again {
            true => self.counters.resent += 1,
            false => self.counters.sent += 1,
        }
        if self.reorder.is_empty() {
            self.acks.handle_carried();
        }
        let body = Body::Packet { sequence, again };
        let path = self.paths.current();
        Some(self.datagram(LinkKind::Data, number, epoch, path, body))
    }

    /// The packet that may be sent now: a probe, else the oldest lost one, else a new one.
    fn poll_packet(&mut self, now_ns: u64, waiting_bytes: Option<u32>) -> Option<(u64, u32, bool)> {
        (self.window_full, self.paced) = (false, false);
        if self.probes > 0 {
            let skip = self.timeouts.min(PROBES).saturating_sub(self.probes) as usize;
            self.probes -= 1;
            if let Some(sequence) = self.sent.oldest(skip) {
                return Some((self.sent.handle_again(now_ns, sequence), sequence, true));
            }
        }
        let lost = self.sent.lost();
        if lost.is_none() && self.sent.is_full() {
            self.window_full = true;
            return None;
        }
        let bytes = lost.map(|(_, bytes)| bytes).or(waiting_bytes)?;
        let under_way = self.sent.in_flight_bytes();
        if under_way > 0 && under_way + u64::from(bytes) > self.window.bytes() {
            self.window_full = true;
            return None;
        }
        if self.pacer.next_ns() > now_ns {
            self.paced = true;
            // The pace follows the window: the window is what holds back.
            self.window_full = true;
            return None;
        }
        self.pacer.handle_sent(
            now_ns,
            bytes.into(),
            self.config.max_datagram_bytes.into(),
            self.window.bytes(),
            self.rtt.smoothed_ns(),
        );
        self.owing_since_ns.get_or_insert(now_ns);
        Some(match lost {
            Some((sequence, _)) => (self.sent.handle_again(now_ns, sequence), sequence, true),
            None => {
                let (sequence, number) = self.sent.handle_new(now_ns, bytes);
                (number, sequence, false)
            }
        })
    }

    fn datagram(&self, kind: LinkKind, number: u64, peer_epoch: u64, path: u8, body: Body) -> Datagram {
        let greeting = matches!(kind, LinkKind::Hello | LinkKind::Welcome);
        let header = LinkHeader {
            kind,
            path,
            expected: if greeting { 0 } else { self.reorder.due() },
            epoch: self.config.epoch,
            peer_epoch,
            number,
            sequence: match body {
                Body::Packet { sequence, .. } => sequence,
                Body::None | Body::Ack => 0,
            },
        };
        Datagram { header, body }
    }

    /// The ack that the last datagram of kind ack carries.
    #[must_use]
    pub const fn ack(&self) -> &LinkAck {
        self.acks.last()
    }

    /// Whether [`poll`](Self::poll) has something at `now_ns` although no new packet waits. May be true needlessly.
    #[must_use]
    pub fn is_due(&self, now_ns: u64) -> bool {
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now_ns);
        self.welcome.is_some()
            || self.asks_again
            || self.probes > 0
            || is_due(self.acks.due_ns())
            || is_due(self.greeting.next_ns())
            || self.sent.lost().is_some()
    }

    /// When to call [`handle_time`](Self::handle_time) and [`poll`](Self::poll) next; `None` if nothing is awaited.
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        if self.dead {
            let times = [self.greeting.next_ns(), self.acks.due_ns()];
            return times.into_iter().flatten().min();
        }
        let paced = self.paced.then(|| self.pacer.next_ns());
        let times = [
            self.dead_ns(),
            self.silent_ns(),
            self.loss_ns,
            self.probe_ns(),
            self.greeting.next_ns(),
            self.acks.due_ns(),
            paced,
        ];
        times.into_iter().flatten().min()
    }

    /// The next packet in order, if it arrived early and is now due.
    pub fn poll_kept(&mut self) -> Option<T> {
        self.reorder.poll()
    }

    /// Number of oldest packets acked since the last call. The owner drops them, and completes what depends on them.
    pub fn poll_over(&mut self) -> u32 {
        self.sent.take_over()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }
}
