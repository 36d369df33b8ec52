//! A client of donors: a node that puts the pages of its program at others, with a disk behind them, and gets them back.
//!
//! What it decides stands here. [`Client`] says where a page goes and where it is looked for, [`PageWord`] what is known of it, [`Member`]'s
//! operations how pages travel, [`Frames`] what frames are used for. Whoever has the threads, the memory and the disk implements
//! [`Member`] and [`Surroundings`].

mod copies;
mod frames;
mod keeping;
mod page;
mod pages;
mod transfer;

pub use copies::{Client, ClientConfig, Loss, Surroundings, Traffic};
pub use frames::{Ended, Frames, Stored};
pub use page::{Elsewhere, Known, MAX_VERSION, PageWord};
pub use transfer::Member;
