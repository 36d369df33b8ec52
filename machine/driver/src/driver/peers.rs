//! Peers as they come and go: news of the job and of the board, peers that break the rules, and this rank's own leave.

use std::os::fd::OwnedFd;

use mapwire_transport::fabric::{Fabric, News};
use mapwire_vmmc::RequestId;
use mapwire_wire::NodeId;

use super::telling::Gone;
use super::{Driver, PROCESS, PeerWords, now_ns, peer_flags};
use crate::breach::Breach;
use crate::error::DriverError;
use crate::exports::{REQUEST, STATUS_TAG};
use crate::log::Line;

impl<F: Fabric> Driver<F> {
    /// News of the job: descriptors that were passed, channels, ranks that went.
    #[cold]
    pub(super) fn housekeep(&mut self) {
        // Grants that have come are outcomes now: whose memory comes next is known.
        self.serve_services();
        while let Some(news) = self.fabric.poll_news() {
            match news {
                News::Connected(peer) => self.node.make_room(peer),
                News::Reached(peer, bytes) => self.handle_reached(peer, bytes),
                News::BadCard(peer, error) => {
                    self.log.push(Line::BadCard { peer, error });
                    self.breaches.note(peer, Breach::Card(error));
                    self.handle_peer_gone(peer);
                }
                News::Unusable(peer, error) => {
                    self.log.push(Line::ChannelUnusable { peer, error });
                    self.handle_peer_gone(peer);
                }
                News::Passed { from, tag, fd } => self.take_passed(from, tag, fd),
                News::NoDescriptor(peer) => self.handle_breach(peer, Breach::NoDescriptor),
                // If the peer is gone, the news say so. If not, its import takes too long, and it names the export.
                News::PassLost { to, tag } => self.log.push(Line::PassLost { to, tag }),
                News::PassAgain { to, tag } => self.pass_again(to, tag),
                News::Gone(peer) => self.handle_peer_gone(peer),
                News::Lost(peer) => self.handle_peer_lost(peer),
            }
        }
    }

    /// Keeps memory that an import under way waits for. What nobody asked for is closed, so that no peer can use up this process's
    /// descriptors.
    fn take_passed(&mut self, from: NodeId, tag: u64, fd: Option<OwnedFd>) {
        // The rest of the tag is its passer's.
        let (request, tag) = (RequestId((tag & REQUEST) as u32), tag & (STATUS_TAG | REQUEST));
        if self.node.awaits_memory(PROCESS, from, request) {
            self.passed.entry(tag).or_insert((from, fd));
            self.end_meeting(request);
        }
    }

    /// A rank has left or died. What it sent before may still be in its ring: that is received first.
    fn handle_peer_lost(&mut self, node: NodeId) {
        if self.is_gone(node) {
            return;
        }
        // Other peers are served in turn, and may send without end: its own ring holds so many packets and no more.
        let most = self.fabric.most_waiting() * (self.fabric.peers().len() + 1);
        if self.fabric.is_far(node) {
            // What has come through the library has not been seen yet.
            self.receive();
        }
        for _ in 0..most {
            if !self.fabric.has_next(node) || !self.receive() {
                break;
            }
        }
        self.handle_peer_gone(node);
    }

    /// A peer broke the rules: it counts as gone.
    #[cold]
    pub(super) fn handle_breach(&mut self, node: NodeId, breach: Breach) {
        self.log.push(Line::PeerBroken { node, breach });
        if node != self.me {
            self.breaches.note(node, breach);
            self.handle_peer_gone(node);
        }
    }

    /// Treats as gone whom the node has found gone. Whether there was anybody.
    #[inline]
    pub(super) fn take_gone(&mut self) -> bool {
        !self.teller.gone.is_empty() && self.take_all_gone()
    }

    #[cold]
    fn take_all_gone(&mut self) -> bool {
        while let Some((node, why)) = self.teller.gone.pop() {
            match why {
                Gone::Broken(breach) => self.handle_breach(node, breach.into()),
                Gone::Left => self.handle_peer_gone(node),
                Gone::Silent => {
                    let at = self.fabric.net().and_then(|net| net.address_of(node));
                    let after = self.silence;
                    self.handle_breach(node, Breach::Silent { at, after });
                }
            }
        }
        true
    }

    /// Why nothing can be had of a peer that is gone: to be told to the program, which then knows that stores may be lost.
    #[must_use]
    pub fn why_gone(&mut self, peer: NodeId) -> DriverError {
        self.node.note_told(peer);
        match self.breaches.of(peer) {
            Some(breach) => DriverError::PeerBroken { peer, breach },
            None => DriverError::PeerGone(peer),
        }
    }

    pub(crate) fn handle_peer_gone(&mut self, node: NodeId) {
        if node == self.me || self.is_gone(node) {
            return;
        }
        if let Some(flags) = self.peers.get(usize::from(node.0)) {
            flags.fetch_or(peer_flags::GONE, core::sync::atomic::Ordering::Release);
        }
        self.fabric.disconnect(node);
        self.node.handle_peer_gone(now_ns(), node);
        if !self.is_confined {
            self.passed.retain(|_, (from, _)| *from != node);
        }
    }

    /// Whether a peer has left or died.
    #[must_use]
    pub fn is_gone(&self, node: NodeId) -> bool {
        is_gone(&self.peers, node)
    }

    /// Peers that live and that packets have gone to, or come from.
    fn acquaintances(&mut self) -> Vec<NodeId> {
        let (me, size) = (self.me, self.fabric.size());
        let mut peers = self.fabric.peers().to_vec();
        if let Some(far) = self.fabric.far() {
            peers.extend(far.peers());
        }
        if let Some(net) = self.fabric.net() {
            let all = (0..size).map(|node| NodeId(node as u16));
            peers.extend(all.filter(|&node| net.knows(node)));
        }
        peers.retain(|&peer| peer != me && !self.is_gone(peer));
        peers
    }

    /// Tells the peers that this rank leaves.
    pub(crate) fn begin_leaving(&mut self) {
        let peers = self.acquaintances();
        self.node.leave(peers.into_iter());
        self.serve_services();
        self.transmit();
        self.transmit_datagrams();
        self.ring_due();
    }

    /// Whether all peers on other hosts that live have heard of it.
    pub(crate) fn has_said_farewell(&mut self) -> bool {
        let peers = self.acquaintances();
        peers.into_iter().all(|peer| {
            let is_near = !self.fabric.is_far(peer) && !self.fabric.is_remote(peer);
            is_near || self.has_given(peer)
        })
    }

    /// Closes the channels, and tells the launcher that this rank has left.
    pub(crate) fn leave(&mut self) {
        for peer in self.acquaintances() {
            self.fabric.disconnect(peer);
        }
        self.close_trace();
        if let Err(error) = self.fabric.leave() {
            self.log.push(Line::LauncherGone(error));
        }
    }
}

/// See [`Driver::is_gone`].
pub(crate) fn is_gone(peers: &PeerWords, node: NodeId) -> bool {
    peers
        .get(usize::from(node.0))
        .is_none_or(|flags| flags.load(core::sync::atomic::Ordering::Acquire) & peer_flags::GONE != 0)
}
