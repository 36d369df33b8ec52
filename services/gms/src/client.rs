//! A client of donors: a node that puts the pages of its program at others, with a disk behind them, and gets them back.
//!
//! What it decides stands here: [`Frames`] says what its frames are used for, [`PageWord`] what is known of a page. Whoever has the threads,
//! the memory and the disk keeps both, and does as they say.

mod frames;
mod page;

pub use frames::{Ended, Frames, Stored};
pub use page::{Elsewhere, Known, MAX_VERSION, PageWord};
