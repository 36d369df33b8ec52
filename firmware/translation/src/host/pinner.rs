//! The interface to whatever pins pages.

use crate::page::{Frame, PageRange, Process};
use core::convert::Infallible;

/// Makes pages usable by the NIC's DMA.
pub trait PinPages {
    /// Why pages cannot be pinned or unpinned.
    type Error;

    /// Pins the pages, none of which is pinned, and writes their frames in page order. On an error none is pinned.
    ///
    /// # Errors
    /// The system refuses.
    fn pin(&mut self, process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), Self::Error>;

    /// Unpins the pages; `frames` are those that [`pin`](Self::pin) wrote for them, perhaps in other runs.
    ///
    /// # Errors
    /// The system refuses.
    fn unpin(&mut self, process: Process, run: PageRange, frames: &[Frame]) -> Result<(), Self::Error>;
}

/// Pins at once whatever is asked; every page gets a new frame.
///
/// ```
/// use mapwire_translation::*;
/// let mut pinner = SimulatedPinner::default();
/// let mut frames = [Frame::GARBAGE; 3];
/// pinner.pin(Process(0), PageRange { first: Page(7), count: 3 }, &mut frames)?;
/// assert_eq!(frames, [Frame(0), Frame(1), Frame(2)]);
/// assert_eq!((pinner.pin_calls, pinner.pinned_pages), (1, 3));
/// # Ok::<(), core::convert::Infallible>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimulatedPinner {
    /// Frame of the next page to be pinned.
    pub next_frame: u64,
    /// Calls that pinned pages.
    pub pin_calls: u64,
    /// Calls that unpinned pages.
    pub unpin_calls: u64,
    /// Pages pinned now.
    pub pinned_pages: u64,
}

impl PinPages for SimulatedPinner {
    type Error = Infallible;

    fn pin(&mut self, _process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), Infallible> {
        for frame in frames {
            *frame = Frame(self.next_frame);
            self.next_frame += 1;
        }
        self.pin_calls += 1;
        self.pinned_pages += run.count;
        Ok(())
    }

    fn unpin(&mut self, _process: Process, run: PageRange, _frames: &[Frame]) -> Result<(), Infallible> {
        self.unpin_calls += 1;
        self.pinned_pages -= run.count;
        Ok(())
    }
}
