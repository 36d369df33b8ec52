//! Pagers as a whole, against oracles.

mod failures;
mod files;
mod forks;
mod local;
mod memory;
mod misuse;
mod oracle;
mod programs;

use mapwire_host::page::PAGE_BYTES;

use super::checksum::Checksum;
use super::config::Config;
use super::*;
use local::LocalMemoryStore;

/// With one handler thread, and with several.
fn each(test: impl Fn(Config, &str)) {
    for threads in [1, 3] {
        test(Config { threads, ..Config::new(32) }, &format!("{threads} handler threads"));
    }
}

fn local(config: Config) -> Pager {
    with_store(config, Box::new(LocalMemoryStore::default()))
}

fn with_store(config: Config, store: Box<dyn BackingStore>) -> Pager {
    Pager::with_config(config, store, Checksum::new()).unwrap()
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}
