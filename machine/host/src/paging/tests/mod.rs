//! Pagers as a whole: every service with every eviction, against oracles.

mod failures;
mod files;
mod forks;
mod memory;
mod misuse;
mod oracle;
mod programs;

use super::*;
use crate::page::PAGE_BYTES;

/// Each way of serving faults with each way of evicting.
fn each(test: impl Fn(PagerConfig, &str)) {
    for service in [FaultService::Threads(1), FaultService::Threads(3), FaultService::FaultingThread] {
        for eviction in [Eviction::Move, Eviction::WriteProtect] {
            let config = PagerConfig::new(32).with_service(service).with_eviction(eviction);
            test(config, &format!("{service:?} {eviction:?}"));
        }
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
