//! Threads of the library.

use std::io;
use std::thread::{Builder, JoinHandle};

use mapwire_host::masking;

/// Starts a thread on which no handlers of the program run: those run on threads of the program.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let masked = masking::mask();
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        masking::mask_for_good();
        work()
    });
    drop(masked);
    thread
}
