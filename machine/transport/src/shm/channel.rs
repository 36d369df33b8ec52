//! A channel: one memfd with two rings, between two ranks of one host.
//!
//! The memfd is sealed against shrinking and growing before anyone maps it, so no peer can make the mapping fault
//! by truncating the file. Nothing of the sizes in the file is trusted: each side maps what its own configuration
//! says, after checking that the file's length and its first words agree.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mapwire_host::mapping::{Mapping, Rights};
use mapwire_host::memory::{MemoryError, Writers, memfd};

use super::ring::{BadRingConfig, Consumer, Producer, RingConfig};

const MAGIC: u64 = u64::from_le_bytes(*b"mapwchan");
/// Version of the layout; changes whenever a byte of it moves.
const VERSION: u64 = 2;
const PREFIX_BYTES: usize = 4096;
const PREFIX_WORDS: usize = 3;

/// Which end of a channel a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The rank with the lower number: sends through the first ring.
    Lower,
    /// The rank with the higher number: sends through the second ring.
    Higher,
}

impl Side {
    /// The side of `own` in the channel with `peer`.
    pub fn of(own: u32, peer: u32) -> Self {
        if own < peer { Self::Lower } else { Self::Higher }
    }
}

/// A channel could not be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error(transparent)]
    Config(#[from] BadRingConfig),
    /// The kernel maps no memory.
    #[error("cannot map a channel of {len_bytes} bytes: {source}; check the memory limits of this process")]
    System { len_bytes: usize, source: rustix::io::Errno },
    /// There is no memory for a channel, or what came from the broker is no memory of mapwire.
    #[error("no channel: {0}")]
    Memory(#[from] MemoryError),
    /// The file is not a channel of this configuration.
    #[error(
        "not a channel of this program: {what} is {found:#x}, expected {expected:#x}; start all ranks from the same build with the same settings"
    )]
    Mismatch {
        what: &'static str,
        /// The value in the file.
        found: u64,
        /// The value that this side has.
        expected: u64,
    },
}

/// One rank's ends of the two rings between it and a peer.
#[derive(Debug)]
pub struct Channel {
    pub sender: Producer,
    pub receiver: Consumer,
}

impl Channel {
    /// Length of a channel's file, two rings and a page, for rings of this configuration.
    pub fn layout_bytes(config: &RingConfig) -> usize {
        PREFIX_BYTES + 2 * config.layout_bytes()
    }

    /// Makes the file of a channel, sealed to its length. Both sides then [`Self::open`] it.
    pub fn create(config: &RingConfig) -> Result<OwnedFd, ChannelError> {
        config.check()?;
        let len_bytes = Self::layout_bytes(config);
        let fd = memfd::create("mapwire-channel", len_bytes)?;
        memfd::finish(&fd, Writers::All)?;
        let region = Mapping::foreign(fd.as_fd(), PREFIX_BYTES, Rights::ReadWrite).map_err(cannot_map(len_bytes))?;
        for (index, word) in prefix(config).into_iter().enumerate() {
            region.word64(index * 8).store(word, Ordering::Release);
        }
        Ok(fd)
    }

    /// Maps one side of a channel. To be called once for each side: the rings start empty.
    pub fn open(fd: impl AsFd, side: Side, config: &RingConfig) -> Result<Self, ChannelError> {
        config.check()?;
        let fd = fd.as_fd();
        let len_bytes = Self::layout_bytes(config);
        let mismatch = |what, found, expected| Err(ChannelError::Mismatch { what, found, expected });

        let length = memfd::verify(fd, 0)?;
        if length != len_bytes as u64 {
            return mismatch("its length in bytes", length, len_bytes as u64);
        }
        let region = Mapping::foreign(fd, len_bytes, Rights::ReadWrite).map_err(cannot_map(len_bytes))?;
        let names = ["its first word", "its layout version", "its ring configuration"];
        for ((index, expected), what) in prefix(config).into_iter().enumerate().zip(names) {
            let found = region.word64(index * 8).load(Ordering::Acquire);
            if found != expected {
                return mismatch(what, found, expected);
            }
        }

        let region = Arc::new(region);
        let (first, second) = (PREFIX_BYTES, PREFIX_BYTES + config.layout_bytes());
        let (outgoing, incoming) = match side {
            Side::Lower => (first, second),
            Side::Higher => (second, first),
        };
        let sender = Producer::new(Arc::clone(&region), outgoing, config);
        sender.prefault();
        Ok(Self { sender, receiver: Consumer::new(region, incoming, config) })
    }

    /// A channel from a rank to itself: one ring in private memory.
    pub fn loopback(config: &RingConfig) -> Result<Self, ChannelError> {
        config.check()?;
        let len_bytes = config.layout_bytes();
        let region = Mapping::anonymous(len_bytes).map_err(cannot_map(len_bytes))?;
        let region = Arc::new(region);
        Ok(Self { sender: Producer::new(Arc::clone(&region), 0, config), receiver: Consumer::new(region, 0, config) })
    }

    /// Tells the peer that this side neither sends nor takes any more.
    pub fn close(&mut self) {
        self.sender.close();
        self.receiver.close();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.close();
    }
}

fn cannot_map(len_bytes: usize) -> impl FnOnce(rustix::io::Errno) -> ChannelError {
    move |source| ChannelError::System { len_bytes, source }
}

fn prefix(config: &RingConfig) -> [u64; PREFIX_WORDS] {
    let sizes = u64::from(config.slots) << 48
        ^ u64::from(config.bulk_bytes.trailing_zeros()) << 40
        ^ u64::from(config.max_payload_bytes);
    [MAGIC, VERSION, sizes]
}
