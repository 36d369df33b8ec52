//! Sending from memory that a peer has mapped, so that it copies the bytes itself ([`super::lent`]).

use std::os::fd::AsFd;

use mapwire_wire::{Header, NodeId};

use super::lent::{BorrowError, Borrowed, MAX_LENT, Reference};
use super::shared::ShmTransport;
use crate::transport::SendError;

impl ShmTransport {
    /// Lends memory to a peer under a number below [`MAX_LENT`] that names none there. Its descriptor must be passed to the
    /// peer after this; it takes it in with [`accept_lent`](Self::accept_lent).
    ///
    /// # Errors
    /// The peer is not connected or gone.
    pub fn lend(&mut self, to: NodeId, number: u32) -> Result<(), SendError> {
        debug_assert!(number < MAX_LENT);
        self.link_mut(to)?.channel.sender.set_live(number, true);
        Ok(())
    }

    /// Whether a peer has mapped what is lent to it under `number`: packets may now refer to it.
    #[inline]
    pub fn reads_lent(&mut self, to: NodeId, number: u32) -> bool {
        self.link_mut(to)
            .is_ok_and(|link| link.channel.sender.is_mapped(number))
    }

    /// Takes memory back from a peer that has mapped it. No packet under way may refer to it.
    pub fn take_back(&mut self, to: NodeId, number: u32) {
        if let Ok(link) = self.link_mut(to) {
            link.channel.sender.set_live(number, false);
        }
    }

    /// Whether a peer still has mapped what was taken back from it. Until then the number cannot name other memory.
    #[must_use]
    pub fn keeps_lent(&self, to: NodeId, number: u32) -> bool {
        self.link(to)
            .is_some_and(|link| link.channel.sender.is_kept(number))
    }

    /// Takes in what a peer lends. Memory that it does not lend, or no longer, is dropped.
    ///
    /// # Errors
    /// Memory that could become unreadable, or that cannot be mapped: the peer's packets then bring their bytes with them.
    pub fn accept_lent(
        &mut self,
        from: NodeId,
        number: u32,
        fd: impl AsFd,
    ) -> Result<(), BorrowError> {
        if number >= MAX_LENT {
            return Ok(());
        }
        let region = Borrowed::map(fd)?;
        if let Ok(link) = self.link_mut(from) {
            link.channel.receiver.borrow(number, region);
        }
        Ok(())
    }

    /// Sends one packet whose payload is in memory that the peer [reads](Self::reads_lent), then `tail`, at most 16 bytes.
    /// `header.length` must be the length of both. The memory must not change until [`released`](Self::released) has
    /// reached what [`sent`](Self::sent) says after this call.
    ///
    /// # Errors
    /// As [`Transport::send`](crate::transport::Transport::send).
    #[inline]
    pub fn send_lent(
        &mut self,
        to: NodeId,
        header: &Header,
        reference: Reference,
        tail: &[u8],
    ) -> Result<(), SendError> {
        let link = self.open_link(to)?;
        let header: &[u8; size_of::<Header>()] = zerocopy::transmute_ref!(header);
        let pushed = link.channel.sender.try_push_lent(header, reference, tail);
        self.pushed(to, pushed)
    }

    /// Packets sent to a peer so far.
    #[must_use]
    pub fn sent(&self, to: NodeId) -> u64 {
        self.link(to).map_or(0, |link| link.channel.sender.pushed())
    }

    /// How many of them it has released, as far as it has said: of a peer that is gone or broken all, as it reads no more.
    #[inline]
    pub fn released(&mut self, to: NodeId) -> u64 {
        let Ok(link) = self.link_mut(to) else {
            return u64::MAX;
        };
        if link.ended || link.channel.sender.consumer_closed() {
            return u64::MAX;
        }
        link.channel.sender.released().unwrap_or_else(|corrupt| {
            // The next look at its packets, or the next send, reports it.
            link.ended = true;
            link.corrupt = Some(corrupt);
            u64::MAX
        })
    }

    /// Whether a peer has released packets of which [`released`](Self::released) has not said so yet.
    #[must_use]
    pub fn has_released(&self, to: NodeId) -> bool {
        self.link(to)
            .is_none_or(|link| link.ended || link.channel.sender.has_released())
    }

    /// Whether another packet of `from` waits. When none does, `from` is told of all releases.
    #[inline]
    pub fn has_next(&mut self, from: NodeId) -> bool {
        let Ok(link) = self.link_mut(from) else {
            return false;
        };
        let has_next = link.channel.receiver.has_packet();
        if !has_next {
            link.channel.receiver.announce();
        }
        has_next
    }

    /// Tells a peer at once of all packets that were released.
    #[inline]
    pub fn announce(&mut self, from: NodeId) {
        if let Ok(link) = self.link_mut(from) {
            link.channel.receiver.announce();
        }
    }

    /// Unmaps what peers have taken back.
    pub(super) fn give_back(&mut self) {
        for index in 0..self.connected.len() {
            if let Ok(link) = self.link_mut(self.connected[index]) {
                link.channel.receiver.give_back();
            }
        }
    }
}
