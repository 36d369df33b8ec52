//! The errors inside an [`Error`](crate::Error): for programs that need more than its
//! [`kind`](crate::Error::kind) and its message.

pub use mapwire_driver::DriverError;
pub use mapwire_driver::breach::Breach;
pub use mapwire_driver::pages::PagesError;
pub use mapwire_dsm::Error as ModelError;
pub use mapwire_host::faults::{ProtectionError, WatchError};
pub use mapwire_host::memory::MemoryError;
pub use mapwire_host::pinning::PinError;
pub use mapwire_host::processes::Forked;
pub use mapwire_host::views::ViewError;
pub use mapwire_nic::{CommandError, NicError};
pub use mapwire_pager::{PagerError, StoreError};
pub use mapwire_translation::{CacheError, PinError as PinLimitError, RangeError};
pub use mapwire_transport::rendezvous::RendezvousError;
pub use mapwire_transport::shm::channel::ChannelError;
pub use mapwire_vmmc::{ProxyError, VmmcError};
pub use mapwire_wire::{Refusal, WireError};

pub use crate::config::ConfigError;
pub use crate::far::FarError;
pub use crate::shared::SharedError;
