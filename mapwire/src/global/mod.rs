//! Global memory: pages in the memory of other processes and hosts (GMS, GMS-NP), by [`mapwire_gms`] as a service of this node.
//!
//! | module | holds |
//! |---|---|
//! | `memory` | a node of the global memory: the service and its frames |
//! | `donor` | a rank that donates frames |
//! | `session` | a rank that puts and gets pages |
//! | `versions` | which version of a page donors have |
//! | `store` | the backing store of a pager: donors before a disk |

mod donor;
mod memory;
mod session;
mod store;
mod versions;

pub use donor::Donation;
pub use store::{DonorStore, Lenders};
