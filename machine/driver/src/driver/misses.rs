//! What the NIC asks of its host: translations that it cannot supply itself.

use mapwire_host::masking;
use mapwire_translation::TranslationDesign;
use mapwire_transport::bells::Wake;

use super::Driver;
use crate::log::Line;

impl Driver {
    /// The NIC asks for something. A design that drops what misses leaves it to a thread of the host (dynamic handle lookup §IV.A:
    /// the miss event queue); for the others this thread is interrupted (UTLB §6.2). Whether anything was done.
    #[cold]
    pub(super) fn handle_misses(&mut self) -> bool {
        if self.nic.translation().drops_on_miss() && !masking::is_library_thread() {
            // The service thread looks for misses whenever it is woken.
            self.board.wake(self.job.rank(), Wake::Service);
            return false;
        }
        let mut worked = false;
        while self.nic.has_misses() {
            self.serve_misses();
            worked |= self.transmit();
        }
        worked
    }

    /// Serves what the NIC asks for, and lets it go on. Whether there was anything.
    pub(crate) fn serve_misses(&mut self) -> bool {
        let mut served = false;
        while let Some(request) = self.nic.poll_miss() {
            served = true;
            if let Err(error) = self.pages.serve(&mut self.nic, request) {
                // What asked for it meets the garbage frame.
                self.log.push(Line::NotServed(error.to_string()));
            }
        }
        if served {
            self.nic.handle_miss_served();
        }
        served
    }

    /// Whether the NIC waits for the host.
    pub(crate) fn has_misses(&self) -> bool {
        self.nic.has_misses()
    }

    /// Gives back pages whose translations have long left the NIC, where there are more than the high-water mark allows
    /// (dynamic handle lookup §IV-B).
    pub(crate) fn reclaim(&mut self) {
        self.release_landings();
        let Self {
            nic, pages, log, ..
        } = self;
        if let Err(error) = pages.reclaim(nic) {
            log.push(Line::NotServed(error.to_string()));
        }
    }
}
