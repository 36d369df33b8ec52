//! A bar with the time left, for whatever takes more than two seconds; on stderr, and only if that is a terminal.

use std::cell::Cell;
use std::io::{self, IsTerminal, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const QUIET: Duration = Duration::from_secs(2);

/// How often the time of a long step is shown anew.
const TICK: Duration = Duration::from_millis(500);

pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    /// The bar is shown, or never will be.
    settled: Cell<bool>,
}

impl Progress {
    /// Progress through `total` bytes; of an unknown number if `None`.
    pub(crate) fn bytes(what: &str, total: Option<u64>) -> Self {
        Self::new(what, total, "{bytes}/{total_bytes}", "{bytes}", "{bytes_per_sec}")
    }

    pub(crate) fn records(what: &str, total: Option<u64>) -> Self {
        Self::new(what, total, "{human_pos}/{human_len}", "{human_pos}", "{per_sec}")
    }

    /// Progress through `total` steps of seconds each, shown from the first on.
    pub(crate) fn steps(total: u64) -> Self {
        let progress = Self::new("", Some(total), "{pos}/{len}", "{pos}", "");
        if !progress.settled.replace(true) {
            progress.bar.set_draw_target(ProgressDrawTarget::stderr());
            progress.bar.enable_steady_tick(TICK);
        }
        progress
    }

    /// `done` steps are behind, and this one is under way.
    pub(crate) fn step(&self, done: u64, what: &str) {
        self.bar.set_message(what.to_owned());
        self.at(done);
    }

    fn new(what: &str, total: Option<u64>, of_total: &str, alone: &str, rate: &str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            Some(_) => format!("{{msg}} {{bar:30}} {of_total} {rate}, {{eta}} left"),
            None => format!("{{msg}} {{spinner}} {alone} {rate}, {{elapsed}}"),
        };
        // A template that cannot be read gives the bar of the library.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self { bar, begun: Instant::now(), settled: Cell::new(!io::stderr().is_terminal()) }
    }

    /// `done` bytes or records are behind.
    pub(crate) fn at(&self, done: u64) {
        self.bar.set_position(done);
        if !self.settled.get() && self.begun.elapsed() > QUIET {
            self.settled.set(true);
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// `input`, whose bytes move the bar as they are read.
    pub(crate) fn watch<R: Read>(&self, input: R) -> Watched<'_, R> {
        Watched { input, read: 0, progress: self }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

pub(crate) struct Watched<'a, R> {
    input: R,
    read: u64,
    progress: &'a Progress,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let more = self.input.read(bytes)?;
        self.read += more as u64;
        self.progress.at(self.read);
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_moves_the_bar() {
        let progress = Progress::bytes("reading", Some(10));
        let mut text = String::new();
        progress.watch(&b"0123456789"[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "0123456789");
        assert_eq!(progress.bar.position(), 10);
    }

    #[test]
    fn bars_of_every_kind_have_a_template_that_is_understood() {
        for total in [None, Some(5)] {
            for progress in [Progress::bytes("x", total), Progress::records("x", total)] {
                progress.at(5);
                assert_eq!(progress.bar.position(), 5);
            }
        }
    }
}
