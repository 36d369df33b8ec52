//! The loop between the node, the paths to its peers, the memories that these may reach, and the outcomes that somebody waits for.

mod asks;
pub mod confined;
mod memory;
mod services;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use mapwire_host::masking;
use mapwire_host::waiting::now_ns;
use mapwire_nic::{Config, Nic};
use mapwire_node::{Node, NodeConfig};
use mapwire_translation::{AnyDesign, ChooseVictims, Counters, TranslationDesign};
use mapwire_transport::fabric::{Fabric, News};
use mapwire_transport::job::JobFabric;
use mapwire_vmmc::service::Figures;
use mapwire_wire::{CommandRepr, HandlerId, Key, NodeId};

use crate::breach::Breach;
use crate::capture::Capture;
use crate::commands::CommandQueue;
use crate::completions::{CompletionWords, WORDS};
use crate::config::DriverConfig;
use crate::error::DriverError;
use crate::ids::{PROCESS, job_key};
use crate::local::Local;
use crate::log::Line;
use crate::memories::Memories;
use crate::outcomes::Outcomes;
use crate::paths::Paths;
use crate::peer_words::PeerWords;
use crate::rma::Rma;

/// The network interface of a process, with the translation design that its job has chosen.
pub type Interface = Nic<AnyDesign>;

/// Turns that a send takes at most before it goes out, when something has come from its peer.
const NEWS_TURNS: u32 = 16;

/// The state behind the lock. It runs a node over a fabric: packets, bells, passed memory.
#[derive(Debug)]
pub struct Driver<F: Fabric = JobFabric> {
    local: Local,
    paths: Paths<F>,
    queue: CommandQueue,
    /// The service thread has been woken for what the page-fault handler has left.
    told_service: bool,
    /// A peer that a service must meet, which the page-fault handler has left to others.
    left_meeting: Option<(HandlerId, NodeId)>,
    /// What services have counted that are gone.
    figures_before: Figures,
}

impl<F: Fabric> Driver<F> {
    /// Joins the parts; nothing is connected yet.
    ///
    /// # Errors
    /// When the pinner, the cache or the NIC cannot be as `config` says.
    pub(crate) fn new(
        config: &DriverConfig,
        fabric: F,
        peers: PeerWords,
        words: Arc<CompletionWords>,
    ) -> Result<Self, DriverError> {
        let (nodes, uid, max_payload_bytes) = (fabric.size(), fabric.uid(), fabric.max_payload_bytes());
        let (mut paths, delivery) = Paths::new(config, fabric, peers.clone())?;
        let node_config = NodeConfig {
            nic: Config {
                node: paths.me(),
                reply_keys: (0..nodes).map(|_| job_key()).collect::<Result<Vec<Key>, DriverError>>()?,
                memory_bytes: config.nic_memory(nodes),
                max_payload_bytes,
                delivery,
            },
            uid,
        };
        let mut node = Node::new(node_config, AnyDesign::new(&config.translation)?)?;
        paths.introduce(&mut node);
        let (mut memories, rules) = Memories::new(config)?;
        node.open_process(PROCESS, rules, WORDS)?;
        let me = paths.me();
        if let Some(library) = paths.fabric_mut().library() {
            memories.add_rma(Rma::new(me, library, &mut node, rules)?);
        }
        let capture = match &config.trace {
            None => None,
            Some(folder) => {
                node.set_tracing(true);
                peers.set_traced();
                Some(Capture::create(folder, u32::from(me.0))?)
            }
        };
        Ok(Self {
            local: Local { node, memories, outcomes: Outcomes::new(words, nodes, capture) },
            paths,
            queue: CommandQueue::new()?,
            told_service: false,
            left_meeting: None,
            figures_before: Figures::default(),
        })
    }

    #[inline]
    pub(crate) fn paths(&mut self) -> &mut Paths<F> {
        &mut self.paths
    }

    /// Who hears of what is over.
    #[inline]
    pub(crate) fn outcomes(&mut self) -> &mut Outcomes {
        &mut self.local.outcomes
    }

    /// One turn: commands, packets in, then what followed from them, and packets out; bells last. Whether anything was done.
    #[inline]
    pub fn poll(&mut self) -> bool {
        let worked = self.turn();
        self.paths.ring_due();
        worked
    }

    /// A turn that leaves the bells due, for a thread that looks again at once: to read whether a peer polls costs a cache line's
    /// way between processors, during which the peer's answer may come. Only a thread that goes on to [`poll`](Self::poll) or
    /// [`ring_due`](Paths::ring_due) very soon may call it, as peers sleep meanwhile.
    #[inline]
    pub(crate) fn turn(&mut self) -> bool {
        let mut worked = self.make_up();
        worked |= self.queue.has_commands() && self.queue.serve(&mut self.local.node, PROCESS);
        worked |= self.local.memories.release_given_up(&mut self.local.node, &self.queue);
        worked |= self.paths.receive(&mut self.local);
        if self.local.node.has_host_work(PROCESS) {
            self.call_host();
        }
        worked |= self.local.memories.drain_moves(|| self.paths.fabric_mut().library());
        if self.paths.fabric().has_news() {
            self.take_news();
            worked = true;
        }
        worked |= self.send_out();
        if worked {
            self.local.outcomes.fire_events();
        }
        self.paths.end_turn(worked);
        worked
    }

    /// The second half of a turn: what services ask for, and packets out. Whether anything was done.
    #[inline]
    fn send_out(&mut self) -> bool {
        let mut worked = self.serve_services();
        worked |= self.paths.transmit(&mut self.local);
        worked |= self.handle_misses();
        self.paths.tell(&mut self.local);
        if self.local.node.owes_pages() {
            // To give pages back frees memory, which no thread may do in the fault handler.
            self.paths.wake_service();
        }
        self.local.outcomes.take_traced(&mut self.local.node);
        worked
    }

    /// Carries out what the page-fault handler has left. Whether there was anything.
    #[inline]
    fn make_up(&mut self) -> bool {
        self.told_service = false;
        self.local.node.has_left() && self.make_up_now()
    }

    #[cold]
    fn make_up_now(&mut self) -> bool {
        self.local.node.make_up(now_ns());
        if let Some(store) = self.local.memories.take_left_store() {
            self.store(store);
        }
        if let Some((handler, peer)) = self.left_meeting.take() {
            self.meet(handler, peer);
        }
        self.paths.forget_gone(&mut self.local.memories);
        self.paths.fabric_mut().bury();
        true
    }

    /// Whether the service thread is to be woken for what the handler may not do. Says so once, until a thread has done it.
    pub(crate) fn needs_service(&mut self) -> bool {
        let needs = self.local.node.has_left() || self.local.node.has_misses() || self.has_duties();
        needs && !core::mem::replace(&mut self.told_service, true)
    }

    /// Whether the page-fault handler, or the NIC, has left anything to others.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        self.local.node.has_left() || self.local.node.has_misses()
    }

    /// The NIC may ask for something. A design that drops what misses leaves it to a thread of the host (dynamic handle lookup §IV.A:
    /// the miss event queue); for the others this thread is interrupted (UTLB §6.2). Whether anything was done.
    #[inline]
    fn handle_misses(&mut self) -> bool {
        self.local.node.has_misses() && self.interrupt_for_misses()
    }

    #[cold]
    fn interrupt_for_misses(&mut self) -> bool {
        if self.local.node.nic().translation().drops_on_miss() && !masking::is_library_thread() {
            // The service thread looks for misses whenever it is woken.
            self.paths.wake_service();
            return false;
        }
        let mut worked = false;
        while self.local.node.has_misses() {
            self.local.serve_misses();
            worked |= self.paths.transmit(&mut self.local);
        }
        worked
    }

    /// Gives back pages and landings that nobody needs.
    pub(crate) fn reclaim(&mut self) {
        self.local.memories.reclaim(&mut self.local.node, &mut self.local.outcomes);
    }

    /// Whether there is anything to do: asked once more before a thread sleeps.
    #[inline]
    pub(crate) fn has_work(&mut self) -> bool {
        self.paths.fabric_mut().has_input() || self.has_duties()
    }

    /// As [`has_work`](Self::has_work), without a look at the peers' rings.
    #[inline]
    pub(crate) fn has_duties(&self) -> bool {
        self.local.outcomes.owes_program() || self.queue.has_commands() || self.paths.fabric().has_news()
    }

    /// Has importers ring after each direct store from here on. Whether one is asked that was not before.
    pub(crate) fn watch(&mut self) -> bool {
        self.local.memories.set_watching(true)
    }

    /// The service thread was rung, or has slept long.
    pub(crate) fn handle_ring(&mut self, rung: bool) {
        self.local.memories.handle_ring(&self.local.outcomes, rung);
    }

    /// When this driver must be polled even if nobody rings, on the monotonic clock.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.local.node.poll_at()
    }

    /// The NIC: counters, translation, memory.
    #[must_use]
    pub fn nic(&self) -> &Interface {
        self.local.node.nic()
    }

    /// Check misses, pins, unpins and pinned pages.
    #[must_use]
    pub fn page_counters(&self) -> Counters {
        self.local.node.page_counters(PROCESS)
    }

    /// The application chooses what is unpinned from here on; false when pages are pinned already.
    pub fn set_chooser(&mut self, chooser: Box<dyn ChooseVictims>) -> bool {
        self.local.node.set_chooser(PROCESS, chooser)
    }

    /// Writes a command to the queue and serves it at once, unless others wait before it.
    ///
    /// # Errors
    /// A command that cannot be written.
    #[inline]
    pub fn submit(&mut self, command: &CommandRepr, data: &[u8]) -> Result<bool, DriverError> {
        let submitted = self.queue.submit_to(&mut self.local.node, PROCESS, command, data)?;
        self.paths.transmit(&mut self.local);
        self.handle_misses();
        if submitted {
            // The caller goes on with its own work, and may not come back.
            self.paths.ask_for_attention(&self.local.node);
        }
        self.paths.ring_due();
        if self.paths.tell(&mut self.local) {
            // Requests of other threads may have ended.
            self.local.outcomes.fire_events();
        }
        self.local.outcomes.take_traced(&mut self.local.node);
        Ok(submitted)
    }

    /// Writes a command to the queue, for the driver's own thread to serve.
    pub(crate) fn enqueue(&mut self, command: &CommandRepr, data: &[u8]) -> Result<bool, DriverError> {
        Ok(self.queue.submit(command, data)?)
    }

    /// Takes what `peer` has sent. Whether anything had come.
    #[inline]
    pub(crate) fn take_news_of(&mut self, peer: NodeId) -> bool {
        let has_come = self.paths.has_news_of(&self.local.node, peer);
        if has_come {
            self.take_all(peer);
        }
        has_come
    }

    #[cold]
    fn take_all(&mut self, peer: NodeId) {
        // A turn may serve other peers first.
        for _ in 0..NEWS_TURNS {
            self.poll();
            if !self.paths.has_next(peer) {
                break;
            }
        }
        if self.local.outcomes.owes_program() {
            self.paths.wake_service();
        }
    }

    /// Takes the news of the job: descriptors that were passed, channels, ranks that went.
    #[cold]
    fn take_news(&mut self) {
        // Grants that have come are outcomes now: whose memory comes next is known.
        self.serve_services();
        while let Some(news) = self.paths.fabric_mut().poll_news() {
            let Local { node, memories, outcomes } = &mut self.local;
            match news {
                News::Connected(peer) => node.make_room(peer),
                News::Reached(peer, bytes) => self.paths.handle_reached(node, peer, bytes),
                News::BadCard(peer, error) => {
                    outcomes.log(Line::BadCard { peer, error });
                    self.paths.note_unreachable(peer, Breach::Card(error));
                    self.paths.handle_gone(&mut self.local, peer);
                }
                News::Unusable(peer, error) => {
                    outcomes.log(Line::ChannelUnusable { peer, error });
                    self.paths.handle_gone(&mut self.local, peer);
                }
                News::Passed { from, tag, fd } => {
                    if let Some(request) = memories.take_passed(node, from, tag, fd) {
                        self.end_meeting(request);
                    }
                }
                News::NoDescriptor(peer) => {
                    self.paths.handle_breach(&mut self.local, (peer, Breach::NoDescriptor));
                }
                // If the peer is gone, the news say so. If not, its import takes too long, and it names the export.
                News::PassLost { to, tag } => outcomes.log(Line::PassLost { to, tag }),
                News::PassAgain { to, tag } => {
                    memories.pass_again(node, outcomes, (to, tag), |tag, fd| self.paths.fabric_mut().pass(to, tag, fd));
                }
                News::Gone(peer) => self.paths.handle_gone(&mut self.local, peer),
                News::Lost(peer) => self.paths.handle_lost(&mut self.local, peer),
            }
        }
    }

    /// Whether a peer has left or died.
    #[must_use]
    pub fn is_gone(&self, peer: NodeId) -> bool {
        self.paths.is_gone(peer)
    }

    /// Why a peer counts as gone that this process found at fault.
    #[must_use]
    pub fn breach_of(&self, peer: NodeId) -> Option<Breach> {
        self.paths.breach_of(peer)
    }

    /// Why nothing comes from a peer that is gone. The program is told, and knows that stores may be lost.
    #[must_use]
    pub fn why_gone(&mut self, peer: NodeId) -> DriverError {
        self.local.node.note_told(peer);
        match self.paths.breach_of(peer) {
            Some(breach) => DriverError::PeerBroken { peer, breach },
            None => DriverError::PeerGone(peer),
        }
    }

    /// Datagrams that came and were rejected, by cause; `None` where no rank is on another host.
    pub fn rejections(&mut self) -> Option<mapwire_seal::Counters> {
        self.paths.rejections()
    }

    /// Whether all that was sent towards a peer has been delivered there.
    pub(crate) fn settled(&mut self, peer: NodeId) -> bool {
        !self.queue.has_commands() && self.paths.has_delivered(&self.local.node, peer)
    }

    /// Whether nothing waits that is to go to a peer that lives.
    pub(crate) fn has_sent_all(&mut self) -> bool {
        let mut others = self.paths.others();
        let has_given = |peer| self.paths.is_gone(peer) || self.paths.has_given(&self.local.node, peer);
        !self.queue.has_commands() && others.all(has_given)
    }

    /// The ranks that stores have not reached, without the program's knowing. Once all was `sent`, no library holds any.
    pub(crate) fn owed(&mut self, sent: bool) -> Vec<NodeId> {
        self.paths.owed(&self.local.node, sent)
    }

    /// Whether packets wait for room at a peer, which nobody is sure to ring for.
    pub(crate) fn is_blocked(&self) -> bool {
        self.paths.is_blocked(&self.local.node)
    }

    /// Whether something must be done long before the service thread looks again.
    #[inline]
    pub(crate) fn needs_attention(&self) -> bool {
        self.paths.needs_attention(&self.local.node)
    }

    /// Lets peers know how much of their rings is free, and writes what the trace has in memory: before a sleep.
    pub(crate) fn flush(&mut self) {
        self.paths.fabric_mut().flush();
        if self.local.outcomes.is_traced() {
            self.local.outcomes.flush_trace(&mut self.local.node);
        }
    }

    /// Tells the peers that this rank leaves.
    pub(crate) fn begin_leaving(&mut self) {
        self.local.node.leave(self.paths.acquaintances().into_iter());
        self.serve_services();
        self.paths.transmit(&mut self.local);
        self.paths.ring_due();
    }

    /// Whether all peers on other hosts that live have heard of it.
    pub(crate) fn has_said_farewell(&mut self) -> bool {
        self.paths.has_said_farewell(&self.local.node)
    }

    /// Closes the channels, and tells the launcher that this rank has left.
    pub(crate) fn leave(&mut self) {
        self.close_trace();
        self.paths.leave(&mut self.local.outcomes);
        self.local.outcomes.end_events();
        self.local.outcomes.finish_log();
    }

    /// Ends the trace, with what this rank has counted itself.
    fn close_trace(&mut self) {
        self.local.outcomes.take_traced(&mut self.local.node);
        self.local.outcomes.flush_trace(&mut self.local.node);
        if let Some(capture) = self.local.outcomes.take_capture() {
            self.local.node.set_tracing(false);
            // What exports have let go of, and nobody has come by to unpin.
            self.reclaim();
            capture.write_counters(&(self.local.node.nic().translation().counters() + self.page_counters()));
        }
    }

    /// Notifications that were dropped, since too many of their sender waited for the program.
    #[must_use]
    pub fn dropped_notices(&self) -> u64 {
        self.local.outcomes.dropped_notices()
    }

    /// Messages of this process that a peer refused after they had left: a revocation crossed them.
    #[must_use]
    pub fn refused_stores(&self) -> u64 {
        self.local.outcomes.refused_stores()
    }
}
