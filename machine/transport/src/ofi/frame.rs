//! The frame at the start of each message over libfabric.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | stamp of the sender, which its name tells |
//! | 8–11 | number of this packet, from 0 for each pair; of other frames the packets sent so far |
//! | 12–15 | packets of the receiver that the sender has released so far |
//! | 16–17 | packets that may be under way to the sender, at least 1 |
//! | 18 | kind |
//! | 19 | version, 2 |
//! | 20–23 | the number of the node that the sender claims to be: who does not know its stamp yet may ask who that is |
//!
//! Little-endian. A packet's header and payload follow.

use mapwire_wire::NodeId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::shm::PeerCorrupt;

pub(super) const VERSION: u8 = 2;
pub(super) const FRAME_BYTES: usize = size_of::<Frame>();

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Packet = 1,
    /// Carries one, and is a question as well.
    AskingPacket = 6,
    /// Tells what was released, and that the sender takes packets.
    Credit = 2,
    /// The same, and wants to hear when all packets before it are released.
    Question = 5,
    /// The sender sends no packet more, and waits for a farewell.
    Farewell = 3,
    /// The sender sends no packet more, and is gone.
    Leaving = 4,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Packet, Self::AskingPacket, Self::Credit, Self::Question, Self::Farewell, Self::Leaving];
}

/// See [the module](self).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Frame {
    pub(super) stamp: U64,
    pub(super) number: U32,
    pub(super) released: U32,
    pub(super) window: U16,
    kind: u8,
    version: u8,
    pub(super) node: U32,
}

impl Frame {
    pub(super) fn new(kind: Kind, (stamp, node): (u64, NodeId), number: u32, released: u32, window: u16) -> Self {
        Self {
            stamp: stamp.into(),
            number: number.into(),
            released: released.into(),
            window: window.into(),
            kind: kind as u8,
            version: VERSION,
            node: u32::from(node.0).into(),
        }
    }

    pub(super) fn kind(&self) -> Result<Kind, PeerCorrupt> {
        let wrong = |what, value| Err(PeerCorrupt { what, value });
        if self.version != VERSION {
            return wrong("version of frames", self.version.into());
        }
        if self.window.get() == 0 {
            return wrong("window", 0);
        }
        match Kind::ALL.into_iter().find(|kind| *kind as u8 == self.kind) {
            Some(kind) => Ok(kind),
            None => wrong("kind of frame", self.kind.into()),
        }
    }
}
