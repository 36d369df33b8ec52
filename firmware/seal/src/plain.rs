//! Envelopes that neither encrypt nor authenticate, for jobs that are told to (`--insecure`).

use core::ops::Range;

use mapwire_wire::NodeId;

use crate::counters::{Cause, Counters};
use crate::sessions::{NotReady, Opened};
use crate::wire::{INITIATE, PLAIN, PLAIN_FRONT_BYTES, SEALED, u32_at};

/// Writes and reads plain envelopes. Anybody who can send datagrams to a node can forge them.
#[derive(Clone, Debug)]
pub struct Plain {
    me: NodeId,
    nodes: u32,
    job: u32,
    counters: Counters,
}

impl Plain {
    /// The node `me` of a job of `nodes` nodes.
    #[must_use]
    pub fn new(me: NodeId, nodes: u32, job: u32) -> Self {
        Self {
            me,
            nodes,
            job,
            counters: Counters::default(),
        }
    }

    /// Reads an envelope.
    #[inline]
    pub fn handle(&mut self, datagram: &[u8]) -> Opened {
        match self.open(datagram) {
            Ok((from, bytes)) => Opened::Data { from, bytes },
            Err(cause) => {
                self.counters.reject(cause);
                Opened::Rejected(cause)
            }
        }
    }

    #[inline]
    fn open(&self, datagram: &[u8]) -> Result<(NodeId, Range<usize>), Cause> {
        match datagram.first() {
            Some(&PLAIN) => {}
            Some(&(INITIATE..=SEALED)) => return Err(Cause::Mode),
            _ => return Err(Cause::Malformed),
        }
        if datagram.len() <= PLAIN_FRONT_BYTES || datagram[1] != 0 {
            return Err(Cause::Malformed);
        }
        let from = NodeId(u16::from_le_bytes([datagram[2], datagram[3]]));
        if u32_at(datagram, 4) != self.job || !self.is_peer(from) {
            return Err(Cause::Misdirected);
        }
        Ok((from, PLAIN_FRONT_BYTES..datagram.len()))
    }

    /// Writes the envelope into the first [`PLAIN_FRONT_BYTES`] of `datagram`.
    ///
    /// # Errors
    /// [`NotReady::NoPeer`], [`NotReady::NoRoom`].
    #[inline]
    pub fn seal(&self, to: NodeId, datagram: &mut [u8]) -> Result<(), NotReady> {
        if !self.is_peer(to) {
            return Err(NotReady::NoPeer(to));
        }
        let room = NotReady::NoRoom(datagram.len());
        let front = datagram
            .first_chunk_mut::<PLAIN_FRONT_BYTES>()
            .ok_or(room)?;
        let [low, high] = self.me.0.to_le_bytes();
        front[..4].copy_from_slice(&[PLAIN, 0, low, high]);
        front[4..].copy_from_slice(&self.job.to_le_bytes());
        Ok(())
    }

    /// Whether `node` is another node of the job.
    #[must_use]
    pub fn is_peer(&self, node: NodeId) -> bool {
        node != self.me && u32::from(node.0) < self.nodes
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}
