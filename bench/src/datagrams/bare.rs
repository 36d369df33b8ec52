//! Bare messages of libfabric between two ranks, and bare stores for long ones.

use std::time::{Duration, Instant};

use mapwire::Node;
use mapwire_transport::net::Carrier;
use mapwire_transport::ofi::bare::Bare;
use mapwire_transport::ofi::rma::RemoteMemory;
use mapwire_transport::ofi::usual_provider;

use super::super::BenchError;
use super::super::words::Words;
use super::word;

/// Bytes of the longest message: a longer one is sent in parts.
const MESSAGE_BYTES: usize = 1 << 20;
/// Messages of a stream that may be under way at most; there are as many buffers.
pub(super) const MOST_UNDER_WAY: usize = 64;
/// Bytes of the shortest message that is stored, where the provider stores: as those of mapwire are.
const STORE_BYTES: usize = 32 << 10;
/// Bytes of the memory that is stored from, and of that which is stored to.
const MEMORY_BYTES: usize = 16 << 20;
/// Bytes of an address, its length and where stores go at most.
const ADDRESS_BYTES: usize = 256;
/// Where among them it stands where stores go.
const TARGET_AT: usize = ADDRESS_BYTES - RemoteMemory::WIRE_BYTES;
/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One rank's endpoint.
pub(super) struct BareWay {
    bare: Bare,
    has_stores: bool,
    /// Stores begun, and parts that have come so.
    stored: usize,
    came: usize,
}

impl BareWay {
    /// Opens an endpoint of the job's provider and connects it to that of the other rank.
    pub(super) fn new(node: &Node, shared: Words) -> Result<Self, BenchError> {
        let provider = match &node.config().driver.net.carrier {
            Carrier::Libfabric { provider: Some(name) } => name.clone(),
            _ => usual_provider()?,
        };
        let mut bare = Bare::open(&provider, MESSAGE_BYTES, MOST_UNDER_WAY, MEMORY_BYTES)?;
        let (mine, theirs) = (place_of(node.rank()), place_of(1 - node.rank()));
        let address = bare.address()?;
        if address.len() > TARGET_AT - 8 {
            return Err("the provider's address is too long for this bench".into());
        }
        let target = bare.target().map(|target| target.to_bytes());
        if let Some(target) = &target {
            write(shared, mine + TARGET_AT, target);
        }
        write(shared, mine + 8, &address);
        shared.store(mine, address.len() as u64);
        let length = loop {
            match shared.load(theirs) as usize {
                0 => std::thread::yield_now(),
                length => break length.min(TARGET_AT - 8),
            }
        };
        bare.connect(&read(shared, theirs + 8, length))?;
        if target.is_some() {
            let peers = read(shared, theirs + TARGET_AT, RemoteMemory::WIRE_BYTES);
            bare.aim(RemoteMemory::from_bytes(peers.first_chunk().expect("as many")));
        }
        Ok(Self { has_stores: target.is_some(), bare, stored: 0, came: 0 })
    }

    /// Whether messages of so many bytes are stored.
    pub(super) fn stores(&self, bytes: usize) -> bool {
        self.has_stores && bytes >= STORE_BYTES
    }

    /// The part that is stored or comes next, of `part` bytes.
    fn place(&self, is_ours: bool, part: usize) -> Words {
        let at = self.bare.memory(is_ours, self.offset(is_ours, part), part);
        Words::new(at.expect("a place inside"), part)
    }

    fn offset(&self, is_ours: bool, part: usize) -> usize {
        let number = if is_ours { self.stored } else { self.came };
        number % slots_of(part) * part
    }

    /// Writes message `number`, or its first part, into the buffer that is sent next.
    pub(super) fn prepare(&mut self, bytes: usize, number: u64) -> Result<(), BenchError> {
        let most = bytes.min(MESSAGE_BYTES);
        let start = Instant::now();
        if self.stores(bytes) {
            // Of the stores before, none reads this part still.
            while self.bare.stores_under_way() + 1 >= slots_of(most) {
                self.bare.poll()?;
                check(start)?;
            }
            self.place(true, most).fill(number as u8);
            return Ok(());
        }
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
                if may_send && self.send_part(part, bytes)? {
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

    /// Sends a part of a message of `bytes` that was prepared; false when there is no room.
    fn send_part(&mut self, part: usize, bytes: usize) -> Result<bool, BenchError> {
        if !self.stores(bytes) {
            return Ok(self.bare.send(part)?);
        }
        if self.bare.buffer().is_empty() || !self.bare.store(self.offset(true, part), part)? {
            return Ok(false);
        }
        self.stored += 1;
        // Behind the store, by the provider's order.
        while !self.bare.send(8)? {
            self.bare.poll()?;
        }
        Ok(true)
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
    pub(super) fn take(&mut self, bytes: usize, number: u64, note: impl Fn()) -> Result<(), BenchError> {
        let mut taken = 0;
        let word = u64::from_ne_bytes([number as u8; 8]);
        let start = Instant::now();
        let is_stored = self.stores(bytes);
        while taken < bytes {
            let Some(part) = self.bare.poll()? else {
                check(start)?;
                continue;
            };
            if is_stored {
                let part_bytes = (bytes - taken).min(MESSAGE_BYTES);
                let place = self.place(false, part_bytes);
                if place.sum(0, part_bytes) != word.wrapping_mul(part_bytes as u64 / 8) {
                    return Err(format!("store {number} of the baseline came wrong").into());
                }
                taken += part_bytes;
                self.came += 1;
                self.bare.release();
                note();
                continue;
            }
            let words = part.chunks_exact(8).map(|word| u64::from_ne_bytes(*word.first_chunk().expect("eight bytes")));
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

/// Writes bytes to the memory by which both ranks keep in step.
fn write(shared: Words, at: usize, bytes: &[u8]) {
    for (index, part) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        shared.store(at + 8 * index, u64::from_le_bytes(word));
    }
}

/// Reads them.
fn read(shared: Words, at: usize, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8)).map(|index| shared.load(at + 8 * index));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

/// Places for parts of so many bytes.
fn slots_of(part: usize) -> usize {
    (MEMORY_BYTES / part).min(MOST_UNDER_WAY + 1)
}

fn check(start: Instant) -> Result<(), BenchError> {
    match start.elapsed() > PATIENCE {
        true => Err("a message of the baseline takes too long".into()),
        false => Ok(()),
    }
}
