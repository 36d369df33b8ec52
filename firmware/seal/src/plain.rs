//! Envelopes that neither encrypt nor authenticate, for jobs with `--insecure`.

use core::ops::Range;

use mapwire_wire::NodeId;

use crate::counters::{Cause, Counters};
use crate::outcome::{NotReady, Opened};
use crate::wire::{INITIATE, PLAIN, PLAIN_FRONT_BYTES, SEALED, type_and_length, u32_at};

/// Writes and reads plain envelopes. Whoever can send datagrams to a node can forge them.
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
        Self { me, nodes, job, counters: Counters::default() }
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
        let length = u16::try_from(datagram.len()).map_err(|_| Cause::Malformed)?;
        if datagram.len() <= PLAIN_FRONT_BYTES
            || datagram[..4] != type_and_length(PLAIN, length)
            || datagram[6..8] != [0; 2]
        {
            return Err(Cause::Malformed);
        }
        let from = NodeId(u16::from_le_bytes([datagram[4], datagram[5]]));
        if u32_at(datagram, 8) != self.job || !self.is_peer(from) {
            return Err(Cause::Misdirected);
        }
        Ok((from, PLAIN_FRONT_BYTES..datagram.len()))
    }

    /// The envelope of a datagram of `from` of `length` bytes, envelope included.
    #[inline]
    #[must_use]
    pub fn front(from: NodeId, job: u32, length: u16) -> [u8; PLAIN_FRONT_BYTES] {
        let mut front = [0; PLAIN_FRONT_BYTES];
        front[..4].copy_from_slice(&type_and_length(PLAIN, length));
        front[4..6].copy_from_slice(&from.0.to_le_bytes());
        front[8..].copy_from_slice(&job.to_le_bytes());
        front
    }

    /// The envelope of a datagram to `to` of `length` bytes, envelope included.
    ///
    /// # Errors
    /// [`NotReady::NoPeer`], [`NotReady::NoRoom`].
    #[inline]
    pub fn front_to(&self, to: NodeId, length: usize) -> Result<[u8; PLAIN_FRONT_BYTES], NotReady> {
        if !self.is_peer(to) {
            return Err(NotReady::NoPeer(to));
        }
        let short = u16::try_from(length).map_err(|_| NotReady::NoRoom(length))?;
        Ok(Self::front(self.me, self.job, short))
    }

    /// Writes the envelope into the first [`PLAIN_FRONT_BYTES`] of `datagram`.
    ///
    /// # Errors
    /// [`NotReady::NoPeer`], [`NotReady::NoRoom`].
    #[inline]
    pub fn seal(&self, to: NodeId, datagram: &mut [u8]) -> Result<(), NotReady> {
        let length = datagram.len();
        let front = self.front_to(to, length)?;
        *datagram.first_chunk_mut().ok_or(NotReady::NoRoom(length))? = front;
        Ok(())
    }

    /// Whether `node` is another node of the job.
    #[must_use]
    pub fn is_peer(&self, node: NodeId) -> bool {
        node != self.me && u32::from(node.0) < self.nodes
    }

    /// Counters so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}
