//! A rank that keeps to no rule: it speaks to its peers' NICs in packets of its own making, or writes into their channels
//! what it likes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mapwire::{Key, Rights};
use mapwire_transport::payload::Payload;
use mapwire_transport::rendezvous::{Client, Event, JobAddress, ToRank};
use mapwire_transport::shm::channel::{Channel, Side};
use mapwire_transport::shm::ring::{PushError, RingConfig};
use mapwire_wire::{ControlMessage, ExportId, HandlerId, Header, ProcessId, Repr};
use zerocopy::{FromBytes, IntoBytes};

use super::Rank;

const LONG: Duration = Duration::from_secs(60);

/// A rank without a node.
pub(crate) struct Outlaw {
    pub(crate) client: Client,
}

impl Outlaw {
    pub(crate) fn join(rank: &Rank) -> Self {
        let address = std::env::var(JobAddress::VARIABLE).expect("a job");
        let address = address.parse().expect("an address");
        let client = Client::join(&address, rank.number as u32, LONG).expect("a place in the job");
        Self { client }
    }

    /// The memory of the channel with `peer`.
    pub(crate) fn channel_memory(&mut self, peer: u32) -> OwnedFd {
        self.client.connect(peer).expect("a launcher");
        self.wait_for(|event| match event {
            Event::Message(ToRank::Channel { peer: found }, Some(fd)) => (found == peer).then_some(fd),
            _ => None,
        })
    }

    /// What `wanted` takes of the next event that it takes anything of; drops those before.
    pub(crate) fn wait_for<T>(&mut self, wanted: impl Fn(Event) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.client.wait(LONG).expect("an event")) {
                return found;
            }
        }
    }

    /// A channel that packets can be sent through.
    pub(crate) fn channel(&mut self, peer: u32) -> RawChannel {
        let memory = self.channel_memory(peer);
        self.channel_in(peer, &memory)
    }

    /// The channel with `peer` in this memory.
    pub(crate) fn channel_in(&self, peer: u32, memory: &OwnedFd) -> RawChannel {
        let side = Side::of(self.client.rank(), peer);
        let channel = Channel::open(memory, side, &RingConfig::default()).expect("a channel's memory");
        RawChannel { channel, peer, sequence: 0, board: self.client.board().clone() }
    }
}

/// Packets to and from one peer.
pub(crate) struct RawChannel {
    channel: Channel,
    peer: u32,
    pub(crate) sequence: u32,
    board: std::sync::Arc<mapwire_transport::board::Board>,
}

/// What an exporter granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) export: ExportId,
    pub(crate) key: Key,
    pub(crate) length: u64,
}

impl RawChannel {
    /// Sends a legal packet with the number that is due.
    pub(crate) fn send(&mut self, repr: &Repr, payload: &[u8]) {
        let (header, inline) = repr.emit(self.sequence);
        let bytes: &[u8] = if inline.is_empty() { payload } else { &inline };
        assert!(self.send_raw(header, bytes), "the victim takes no more");
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Sends these bytes as they are; the ring's own length is that of the payload. False when the victim takes no more.
    pub(crate) fn send_raw(&mut self, header: Header, payload: &[u8]) -> bool {
        let mut bytes = [0; size_of::<Header>()];
        bytes.copy_from_slice(header.as_bytes());
        let end = Instant::now() + LONG;
        loop {
            let payload = Payload::one(payload);
            match self.channel.sender.try_push(&bytes, payload.pieces()) {
                Ok(()) => break,
                Err(PushError::Full) if self.is_closed() => return false,
                Err(PushError::Full) => {
                    assert!(Instant::now() < end, "the victim takes no more");
                    // It may be asleep since this side sends nothing back.
                    self.board.wake(self.peer, mapwire_transport::bells::Wake::All);
                    self.drain();
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.board.ring(self.peer);
        true
    }

    /// Whether the victim has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.channel.sender.consumer_closed()
    }

    /// The next packet from the victim.
    pub(crate) fn receive(&mut self) -> (Header, Vec<u8>) {
        let end = Instant::now() + LONG;
        loop {
            if let Some(packet) = self.try_receive() {
                return packet;
            }
            assert!(Instant::now() < end, "the victim says nothing");
            std::thread::yield_now();
        }
    }

    fn try_receive(&mut self) -> Option<(Header, Vec<u8>)> {
        let incoming = self.channel.receiver.peek().expect("a sound ring")?;
        let header = Header::read_from_bytes(incoming.header).expect("a header");
        let mut payload = vec![0; incoming.payload.len_bytes()];
        incoming.payload.copy_to_slice(0, &mut payload);
        self.channel.receiver.release();
        Some((header, payload))
    }

    /// Throws away what the victim has sent so far; how many packets.
    pub(crate) fn drain(&mut self) -> usize {
        std::iter::from_fn(|| self.try_receive()).count()
    }

    /// Sends a control message.
    pub(crate) fn control(&mut self, message: &ControlMessage<'_>) {
        let bytes = message.to_vec().expect("a legal message");
        let length = bytes.len() as u32;
        self.send(&message_for(HandlerId::CONTROL, length), &bytes);
    }

    /// Imports in the ordinary way, and gives what an importer must keep to itself.
    pub(crate) fn import(&mut self, name: &str, rights: Rights) -> Grant {
        self.control(&ControlMessage::ImportRequest { request: 7, name, rights, token: None });
        loop {
            let (header, payload) = self.receive();
            if let Ok(Repr::Handler { handler: HandlerId::CONTROL, .. }) = Repr::parse(&header, &payload) {
                match ControlMessage::parse(&payload) {
                    Ok(ControlMessage::ImportGranted { export, key, length, .. }) => {
                        return Grant { export, key, length };
                    }
                    other => panic!("no grant of {name}: {other:?}"),
                }
            }
        }
    }
}

/// Memory of a descriptor, mapped to be written into at will.
pub(crate) struct Scratch {
    start: *mut u8,
    bytes: usize,
}

impl Scratch {
    pub(crate) fn map(memory: impl AsFd) -> Self {
        let bytes = rustix::fs::fstat(&memory).expect("its size").st_size as usize;
        let (rights, flags) =
            (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
        // SAFETY: a fresh mapping wherever the kernel likes.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, rights, flags, memory.as_fd(), 0) };
        Self { start: start.expect("a mapping").cast(), bytes }
    }

    /// Second mappings of what this process has mapped under `name` and may store into: they stay when the first go.
    pub(crate) fn mapped_here(name: &str) -> Vec<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the mapped ranges");
        let mut found = Vec::new();
        for line in maps.lines().filter(|line| line.contains(name) && line.contains(" rw-s ")) {
            let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
            let number = |text| usize::from_str_radix(text, 16).expect("an address");
            let bytes = number(end) - number(start);
            let start = std::ptr::with_exposed_provenance_mut(number(start));
            let flags = rustix::mm::MremapFlags::MAYMOVE;
            // SAFETY: with an old size of 0 a shared mapping stays as it is and gets a second place, which is this value's.
            let second = unsafe { rustix::mm::mremap(start, 0, bytes, flags) };
            let start = second.expect("a second mapping").cast();
            found.push(Self { start, bytes });
        }
        found
    }

    /// Random words at random places, more of them near the start, where what is small but important lies.
    pub(crate) fn scribble(&self, dice: &mut Dice, words: u32) {
        for _ in 0..words {
            let offset = match dice.below(4) {
                0 => dice.below(16_384) as usize,
                _ => dice.roll() as usize,
            };
            let value = match dice.below(6) {
                0 => 0,
                1 => u64::MAX,
                2 => dice.below(256),
                // As a slot's first word may be: a sequence number that may be due, and a length.
                3 => dice.below(4500) << 32 | dice.below(200),
                4 => 1 << dice.below(64),
                _ => dice.roll(),
            };
            self.store(offset, value);
        }
    }

    /// Stores a word; the offset is taken modulo the memory, and rounded down to words.
    pub(crate) fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Loads a word, as [`store`](Self::store) stores it.
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::SeqCst)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let at = offset % self.bytes / 8 * 8;
        // SAFETY: eight aligned bytes inside the mapping, which others write too, as atomics.
        unsafe { &*self.start.add(at).cast() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: a mapping of this value's own, unmapped once.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) };
    }
}

/// Numbers without much of a pattern.
pub(crate) struct Dice(u64);

impl Dice {
    /// The dice of a rank. Their seed is printed; `JOBS_SEED` sets another than the usual.
    pub(crate) fn of(rank: &Rank) -> Self {
        let seed = std::env::var("JOBS_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(20_261_121_u64);
        println!("seed {seed}, rank {}", rank.number);
        Self::new(seed.wrapping_mul(1000) + rank.number as u64)
    }

    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.roll() >> 11) % end
    }
}

/// A message of `length` bytes for a handler of the victim.
pub(crate) fn message_for(handler: HandlerId, length: u32) -> Repr {
    Repr::Handler { handler, from: ProcessId(0), to: ProcessId(0), length }
}
