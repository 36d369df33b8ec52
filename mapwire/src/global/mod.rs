//! Global memory: pages in the memory of other processes and hosts (GMS, GMS-NP), by [`mapwire_gms`] as a service of this node. Where pages
//! go and where they are looked for is decided there, by its `Client`; here are the threads, the memory and the disk.
//!
//! | module | holds |
//! |---|---|
//! | `memory` | a node of the global memory: the service and its frames |
//! | `placement`, `host_thread` | where its part of the page directory lies, and who answers for it |
//! | `copies` | what a client of donors has around it: disk, session, what is known of each page |
//! | `donor` | a rank that donates frames |
//! | `session` | a rank that puts and gets pages |
//! | `versions` | a word for each page, which says what is known of it |
//! | `lenders` | where donors are found |
//! | `keeper` | the thread that meets donors and looks after what they have |
//! | `store` | the backing store of a pager: donors before a disk |

mod copies;
mod donor;
mod host_thread;
mod keeper;
mod lenders;
mod memory;
pub(crate) mod placement;
mod session;
mod store;
mod versions;

pub use donor::Donation;
pub use lenders::Lenders;
pub use memory::GlobalMemory;
pub use placement::DirectoryPlacement;
pub use store::DonorStore;
