//! How a rank ends that cannot go on.

/// Exit status of a rank whose memory was lost under it: `EX_SOFTWARE` of sysexits.
const EXIT_LOST: i32 = 70;

/// Exit status of a rank of which a thread panicked that it cannot do without: as of a Rust program that panics.
const EXIT_PANIC: i32 = 101;

/// Ends the process at once, as a failed rank rather than as a crash.
#[cold]
pub fn exit_lost() -> ! {
    crate::mover::exit(EXIT_LOST)
}

/// Runs what the rank cannot do without: a panic has said what it is, and ends the process.
pub(super) fn run_to_the_end(serve: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).is_err() {
        crate::mover::exit(EXIT_PANIC);
    }
}
