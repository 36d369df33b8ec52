//! Pagers as a whole, with every service, against oracles.

mod failures;
mod files;
mod forks;
mod memory;
mod misuse;
mod oracle;
mod programs;

use super::*;
use crate::page::PAGE_BYTES;

/// Every way of serving faults.
fn each(test: impl Fn(PagerConfig, &str)) {
    for service in [FaultService::Threads(1), FaultService::Threads(3), FaultService::FaultingThread] {
        test(PagerConfig::new(32).with_service(service), &format!("{service:?}"));
    }
}

fn local(config: PagerConfig) -> Pager {
    Pager::new(config, Box::new(LocalMemoryStore::new())).unwrap()
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}
