//! Bare messages of libfabric between two ranks.

use std::time::{Duration, Instant};

use mapwire::Node;
use mapwire_transport::net::Carrier;
use mapwire_transport::ofi::bare::Bare;
use mapwire_transport::ofi::usual_provider;

use super::super::BenchError;
use super::super::words::Words;
use super::word;

/// Bytes of the longest message: a longer one is sent in parts.
const MESSAGE_BYTES: usize = 1 << 20;
/// Messages of a stream that may be under way at most; there are as many buffers.
pub(super) const MOST_UNDER_WAY: usize = 64;
/// Bytes of an address and its length at most.
const ADDRESS_BYTES: usize = 256;
/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One rank's endpoint.
pub(super) struct BareWay {
    bare: Bare,
}

impl BareWay {
    /// Opens an endpoint of the job's provider and connects it to that of the other rank.
    pub(super) fn new(node: &Node, shared: Words) -> Result<Self, BenchError> {
        let provider = match &node.config().driver.net.carrier {
            Carrier::Libfabric {
                provider: Some(name),
            } => name.clone(),
            _ => usual_provider()?,
        };
        let mut bare = Bare::open(&provider, MESSAGE_BYTES, MOST_UNDER_WAY)?;
        let (mine, theirs) = (place_of(node.rank()), place_of(1 - node.rank()));
        let address = bare.address()?;
        if address.len() > ADDRESS_BYTES - 8 {
            return Err("the provider's address is too long for this bench".into());
        }
        for (index, part) in address.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            shared.store(mine + 8 + 8 * index, u64::from_le_bytes(word));
        }
        shared.store(mine, address.len() as u64);
        let length = loop {
            match shared.load(theirs) as usize {
                0 => std::thread::yield_now(),
                length => break length.min(ADDRESS_BYTES - 8),
            }
        };
        let words = (0..length.div_ceil(8)).map(|index| shared.load(theirs + 8 + 8 * index));
        let mut peer: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        peer.truncate(length);
        bare.connect(&peer)?;
        Ok(Self { bare })
    }

    /// Writes message `number`, or its first part, into the buffer that is sent next.
    pub(super) fn prepare(&mut self, bytes: usize, number: u64) -> Result<(), BenchError> {
        let most = bytes.min(MESSAGE_BYTES);
        let start = Instant::now();
        while self.bare.buffer().is_empty() {
            self.bare.poll()?;
            check(start)?;
        }
        self.bare.buffer()[..most].fill(number as u8);
        Ok(())
    }

    /// Sends the message that was prepared, each part once `has_room` for its bytes.
    pub(super) fn send(
        &mut self,
        bytes: usize,
        number: u64,
        has_room: impl Fn(usize) -> bool,
    ) -> Result<(), BenchError> {
        let mut left = bytes;
        loop {
            let part = left.min(MESSAGE_BYTES);
            let start = Instant::now();
            let mut may_send = false;
            loop {
                may_send = may_send || has_room(part);
                if may_send && self.bare.send(part)? {
                    break;
                }
                self.bare.poll()?;
                check(start)?;
            }
            left -= part;
            if left == 0 {
                return Ok(());
            }
            self.prepare(left, number)?;
        }
    }

    /// Lets the library work while nothing is taken.
    pub(super) fn idle(&mut self) -> Result<(), BenchError> {
        self.bare.poll()?;
        Ok(())
    }

    /// Waits until all that was sent has left.
    pub(super) fn drain(&mut self) -> Result<(), BenchError> {
        let start = Instant::now();
        while self.bare.is_sending() {
            self.bare.poll()?;
            check(start)?;
        }
        Ok(())
    }

    /// Takes a message and reads it. `note` is called after each part.
    pub(super) fn take(
        &mut self,
        bytes: usize,
        number: u64,
        note: impl Fn(),
    ) -> Result<(), BenchError> {
        let mut taken = 0;
        let word = u64::from_ne_bytes([number as u8; 8]);
        let start = Instant::now();
        while taken < bytes {
            let Some(part) = self.bare.poll()? else {
                check(start)?;
                continue;
            };
            let words = part
                .chunks_exact(8)
                .map(|word| u64::from_ne_bytes(*word.first_chunk().expect("eight bytes")));
            let sum = words.fold(0, u64::wrapping_add);
            if sum != word.wrapping_mul(part.len() as u64 / 8) {
                return Err(format!("message {number} of the baseline came wrong").into());
            }
            taken += part.len();
            self.bare.release();
            note();
        }
        Ok(())
    }
}

/// Where the address of a rank stands in the memory by which both keep in step.
fn place_of(rank: usize) -> usize {
    word::ADDRESS + ADDRESS_BYTES * rank
}

fn check(start: Instant) -> Result<(), BenchError> {
    match start.elapsed() > PATIENCE {
        true => Err("a message of the baseline takes too long".into()),
        false => Ok(()),
    }
}
