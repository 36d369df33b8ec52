//! One rank of a job: this test program again, in the middle of the test that started it.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mapwire::{Node, Shared};

use super::job::FOLDER;
use super::leaks;

/// Longer than anything here takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// This process as a rank.
pub(crate) struct Rank {
    pub(crate) number: usize,
    pub(crate) size: usize,
    folder: PathBuf,
}

/// Runs `body` as a rank and ends the process: with 0 when it ran through and nothing of it is left, else with 101.
pub(crate) fn be(body: impl FnOnce(&Rank)) -> ! {
    let number = |name: &str| std::env::var(name).expect(name).parse().expect("a number of ranks");
    let rank = Rank {
        number: number("MAPWIRE_RANK"),
        size: number("MAPWIRE_SIZE"),
        folder: std::env::var_os(FOLDER).expect(FOLDER).into(),
    };
    if rank.number == 0 {
        rank.note("job", &std::env::var("MAPWIRE_JOB").expect("a job's address"));
    }
    let before = leaks::holdings();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        body(&rank);
        leaks::check_holdings(&before);
    }));
    std::process::exit(if outcome.is_ok() { 0 } else { 101 })
}

impl Rank {
    /// Joins the job.
    pub(crate) fn node(&self) -> Node {
        Node::join().expect("a place in the job")
    }

    /// Opens the shared memory with one thread.
    pub(crate) fn shared(&self, node: &Node) -> Shared {
        Shared::open(node, 1).expect("shared memory")
    }

    /// Leaves a note that other ranks can find, by a way that is not under test.
    pub(crate) fn note(&self, name: &str, text: &str) {
        // Under its name only when it is complete.
        let draft = self.folder.join(format!("{name}.{}", self.number));
        std::fs::write(&draft, text).expect("a note");
        std::fs::rename(draft, self.folder.join(name)).expect("a note");
    }

    /// Where a note is, or will be.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether a note is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Waits for a note and reads it, asleep meanwhile: without any call of mapwire.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        eventually(name, || self.has(name));
        std::fs::read_to_string(self.folder.join(name)).expect("a note")
    }

    /// Waits until every rank has called this with the same name, by notes.
    #[track_caller]
    pub(crate) fn meet(&self, name: &str) {
        self.note(&format!("{name}-{}", self.number), "");
        for other in 0..self.size {
            eventually(&format!("rank {other} at {name}"), || self.has(&format!("{name}-{other}")));
        }
    }
}

/// Waits for something that comes true without help, in short naps.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The text of the error that must come.
#[track_caller]
pub(crate) fn refusal<T>(outcome: Result<T, impl Display>) -> String {
    match outcome {
        Ok(_) => panic!("this should have been refused"),
        Err(error) => error.to_string(),
    }
}

/// Fails unless `outcome` is an error whose text has all of `parts`.
#[track_caller]
pub(crate) fn refused<T>(outcome: Result<T, impl Display>, parts: &[&str]) {
    let text = refusal(outcome);
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Bytes that tell where they are from: no two shifts of them are alike for long.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}
