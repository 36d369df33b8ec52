//! What nodes say to each other.

use mapwire_wire::NodeId;

use crate::map::{BUCKETS, MapVersion};
use crate::name::{PageHash, PageName};
use crate::nodes::NodeSet;

/// Frames that a storing node grants in one message, and to one peer, at most.
pub const MAX_GRANTS: usize = 64;
/// Bins of a histogram of page ages: bin 0 holds ages of 0 ms, bin *b* those from 2^(*b* − 1) ms on.
pub const AGE_BINS: usize = 32;
pub(crate) const BUCKET_BYTES: usize = BUCKETS / 8;

/// A set of buckets, a bit each.
pub(crate) type BucketSet = [u8; BUCKET_BYTES];

/// A request on its way through the directory node. The directory node turns a getpage into the forwarded request, and the storing
/// node turns it back, by changing the operation alone (GMS-NP §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked, or answered.
    pub operation: Operation,
    /// Storing nodes that the directory node has tried.
    pub attempts: u8,
    /// The requesting node.
    pub requester: NodeId,
    /// Its number of the request.
    pub sequence: u32,
    /// Getpage: the landing frame. Discardpage: the newest version that nobody needs.
    pub value: u32,
    /// The map that the requester goes by.
    pub map: MapVersion,
    /// The page's hash.
    pub hash: PageHash,
    pub name: PageName,
}

/// The operation of a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Getpage, requesting → directory node; the storing node keeps its copy.
    Get = 1,
    /// Getpage; the storing node gives its copy away.
    Take,
    /// The same, directory → storing node.
    Forward,
    /// The same, directory → storing node.
    ForwardTake,
    /// Storing → directory node: the page is not there. It tries the next copy.
    NotHere,
    /// The same, of a page that was to be given away.
    NotHereTake,
    /// Directory → requesting node: the page is not in global memory.
    Absent,
    /// Discardpage, requesting → directory node.
    Discard,
    /// Directory → requesting node: the page is discarded.
    Discarded,
}

impl Operation {
    /// Whether the request is for a directory node.
    #[must_use]
    pub const fn is_for_directory(self) -> bool {
        matches!(self, Self::Get | Self::Take | Self::NotHere | Self::NotHereTake | Self::Discard)
    }
}

/// What became of a copy that a storing node reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Listing {
    /// The directory names it.
    Listed = 1,
    /// A newer version of the page exists.
    Older,
    /// There are [`MAX_COPIES`](crate::MAX_COPIES) already.
    Copies,
    /// The directory has no room.
    Full,
}

/// Why a storing node did not take a page, or a put failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// A copy that is as new, or newer, has taken its place.
    Older = 1,
    /// There are [`MAX_COPIES`](crate::MAX_COPIES) already.
    Copies,
    /// The directory node has no room for one more page.
    DirectoryFull,
    /// No frame is free at the nodes that were asked.
    NoFrame,
    /// No node serves frames.
    NoDonor,
    /// The storing node serves fewer frames from now on, or none.
    Shrinking,
    /// The storing node is gone, or no member any more.
    Gone,
    /// The page was discarded or replaced by a newer version before the directory had confirmed it.
    Obsolete,
}

/// A page as putpage brings it and getpage brings it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageInfo {
    pub name: PageName,
    pub hash: PageHash,
    /// Its version: grows whenever the contents change.
    pub version: u32,
    /// The program's checksum of the contents.
    pub checksum: u32,
    /// Milliseconds since its last use.
    pub age_ms: u32,
    /// Whether the contents are on permanent storage.
    pub on_disk: bool,
}

/// Up to [`MAX_GRANTS`] frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameList {
    count: u8,
    frames: [u32; MAX_GRANTS],
}

impl Default for FrameList {
    fn default() -> Self {
        Self { count: 0, frames: [0; MAX_GRANTS] }
    }
}

impl FrameList {
    /// The frames.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.frames[..usize::from(self.count)]
    }
}

impl FromIterator<u32> for FrameList {
    /// Takes the first [`MAX_GRANTS`].
    fn from_iter<I: IntoIterator<Item = u32>>(frames: I) -> Self {
        let mut list = Self::default();
        for (slot, frame) in list.frames.iter_mut().zip(frames) {
            *slot = frame;
            list.count += 1;
        }
        list
    }
}

/// How old the pages of a node are (Feeley §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeReport {
    pub epoch: u32,
    /// Frames that serve others and are free.
    pub free: u32,
    /// Pages replaced since the last report.
    pub replaced: u32,
    /// Pages by age.
    pub bins: [u32; AGE_BINS],
}

/// What holds in an epoch (Feeley §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochInfo {
    /// Its number.
    pub epoch: u32,
    /// Pages older than this are not worth a frame; in milliseconds.
    pub min_age_ms: u32,
    /// How long it lasts at most.
    pub duration_ms: u32,
    /// Pages that may be replaced in it.
    pub budget: u32,
    /// Who begins the next one.
    pub next_initiator: NodeId,
    /// The receiver's and all others' share of the oldest pages, in 65,535ths of the largest, by node number.
    pub weights: [u16; crate::nodes::MAX_NODES as usize],
}

/// A message between two nodes. `sequence` is the requesting node's number of a getpage or of one copy of a putpage; `frame` a frame
/// of the storing node; `stamp` its number of the report that is meant; `grant` a frame in place of the one that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "epochs are rare, and boxes would allocate")]
pub enum Message {
    /// Getpage or discardpage on its way.
    Request(Request),
    /// Storing → requesting node: the page lies in the landing frame.
    Page { sequence: u32, page: PageInfo },
    /// Requesting → storing node: the frame that the page came from is not read any more. The page was asked for, or was not.
    Landed { sequence: u32, is_taken: bool },
    /// Requesting → storing node: the page lies in the granted frame. It `moves` if the sender stores it for others, too, and wants to
    /// drop its copy.
    Put { sequence: u32, frame: u32, moves: bool, page: PageInfo },
    /// Storing → requesting node: the page is stored and listed.
    Stored { sequence: u32, grant: Option<u32> },
    /// Storing → requesting node: it is not.
    Refused { sequence: u32, why: Refusal, grant: Option<u32> },
    /// Storing → directory node: the sender has a copy. It counts only if the node that it moved from is still listed: else the page
    /// has been discarded or given away meanwhile.
    Insert { frame: u32, stamp: u32, version: u32, moved_from: Option<NodeId>, hash: PageHash, name: PageName },
    /// Directory → storing node: what became of it.
    Listed { frame: u32, stamp: u32, listing: Listing },
    /// Storing → directory node: the sender has no copy any more.
    Remove { hash: PageHash, name: PageName },
    /// Storing → directory node: may the sender drop its copy? One that is not listed may go, and one of which there is another, if the
    /// page is on permanent storage: else whoever put it counts on all its copies.
    Spare { frame: u32, stamp: u32, on_disk: bool, hash: PageHash, name: PageName },
    /// Directory → storing node: it may, and is not listed any more; or it may not.
    Spared { frame: u32, stamp: u32, is_spared: bool },
    /// Directory → storing node: copies of versions below this are needed no more.
    Drop { below: u32, hash: PageHash, name: PageName },
    /// Requesting → storing node: the sender wants frames for pages.
    Want,
    /// Storing → requesting node: frames for pages; none if it has none.
    Grant { frames: FrameList },
    /// Storing → requesting node: give back what was granted.
    Recall,
    /// Requesting → storing node: granted frames that the sender does not use.
    Return { frames: FrameList },
    /// To all: the map that the sender goes by from now on, and the one that it was made from.
    Map { version: MapVersion, previous: MapVersion, members: NodeSet },
    /// Storing → directory node: forget what the sender has reported in these buckets. Reports follow.
    Reset { buckets: BucketSet },
    /// To all: the sender has reported all that changes with this map, and sends no more by an older one.
    Reported { version: MapVersion, free: u32 },
    /// To all: the sender wants to be a member.
    Join,
    /// To all: the sender wants to be a member no more.
    Leave,
    /// To all: a node is gone.
    Gone { node: NodeId },
    /// To all: frames of the sender that are free for others.
    Free { frames: u32 },
    /// Initiator → all: how old are your pages?
    AgesWanted { epoch: u32 },
    /// The answer.
    Ages(AgeReport),
    /// Initiator → all: what holds from now on.
    Epoch(EpochInfo),
}
