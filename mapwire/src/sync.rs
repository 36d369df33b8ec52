//! Synchronisation objects anywhere in the shared memory of one host, by their offset: see [`Shared::objects`](crate::Shared::objects).

pub use mapwire_host::waiting::now_ns;
pub use mapwire_segment::SegmentError;
pub use mapwire_segment::sync::*;
