//! How much memory this host can spare, and whether it is idle.

use std::fs;
use std::time::{Duration, Instant};

/// Memory that the host keeps for itself: a twentieth of its memory, and a quarter of a GiB at least.
const LEAST_RESERVE: u64 = 256 << 20;

/// The host is idle while others than donors use less of its processors than this, in percent.
const IDLE_PERCENT: u64 = 25;

/// How long it is looked at to find that out.
const SPAN: Duration = Duration::from_secs(5);

/// Memory of the host, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) available: u64,
}

impl Memory {
    /// By `/proc/meminfo`; `None` where that cannot be read.
    pub(super) fn now() -> Option<Self> {
        parse_memory(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    /// How much may be donated, of which `donated` is so already, and is not among what is available.
    pub(super) fn to_donate(self, donated: u64) -> u64 {
        let reserve = (self.total / 20).max(LEAST_RESERVE);
        (donated + self.available).saturating_sub(reserve)
    }
}

fn parse_memory(text: &str) -> Option<Memory> {
    let value = |name: &str| {
        let mut lines = text.lines();
        let rest = lines.find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Memory { total: value("MemTotal:")?, available: value("MemAvailable:")? })
}

/// Time of all processors, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    busy: u64,
}

fn parse_ticks(text: &str) -> Option<Ticks> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|it| it.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal: guests are among the users.
    let all: u64 = ticks.get(..8)?.iter().sum();
    let idle = ticks[3] + ticks[4] + ticks[7];
    Some(Ticks { all, busy: all - idle })
}

fn parse_process(text: &str) -> Option<u64> {
    // Behind the name, which may hold anything.
    let rest = text.rsplit_once(") ")?.1;
    let mut fields = rest.split(' ').skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// Whether others than the donors use the processors.
#[derive(Debug)]
pub(super) struct Idleness {
    since: Instant,
    ticks: Ticks,
    of_donors: u64,
    is_idle: bool,
}

impl Idleness {
    /// The host counts as busy until it has been looked at for some seconds.
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), ticks: now(), of_donors: 0, is_idle: false }
    }

    /// Whether the host is idle, apart from the processes `donors`.
    pub(super) fn look(&mut self, donors: impl Iterator<Item = u32>) -> bool {
        if self.since.elapsed() >= SPAN {
            let ticks = now();
            let of_donors = donors
                .filter_map(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok())
                .filter_map(|text| parse_process(&text))
                .sum();
            let others = (ticks.busy - self.ticks.busy.min(ticks.busy))
                .saturating_sub(u64::saturating_sub(of_donors, self.of_donors));
            let all = ticks.all.saturating_sub(self.ticks.all).max(1);
            self.is_idle = others * 100 < all * IDLE_PERCENT;
            (self.since, self.ticks, self.of_donors) = (Instant::now(), ticks, of_donors);
        }
        self.is_idle
    }
}

fn now() -> Ticks {
    let text = fs::read_to_string("/proc/stat");
    text.ok().and_then(|text| parse_ticks(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_can_spare_leaves_it_a_reserve() {
        let text = "MemTotal:       10485760 kB\nMemFree:  1 kB\nMemAvailable:    1048576 kB\n";
        let memory = parse_memory(text).unwrap();
        assert_eq!((memory.total, memory.available), (10 << 30, 1 << 30));
        // A twentieth of 10 GiB stays.
        assert_eq!(memory.to_donate(0), 512 << 20);
        assert_eq!(memory.to_donate(1 << 30), (1 << 30) + (512 << 20));
        let short = Memory { available: 0, ..memory };
        assert_eq!(short.to_donate(1 << 30), 512 << 20);
        assert_eq!(short.to_donate(1), 0);
        assert_eq!(parse_memory("MemTotal: 5 kB"), None);
        assert!(Memory::now().is_some());
    }

    #[test]
    fn the_time_of_processors_and_processes_is_read_from_the_kernels_files() {
        let ticks = parse_ticks("cpu  10 1 2 100 7 3 4 5 9 9\ncpu0 1\n").unwrap();
        assert_eq!(ticks, Ticks { all: 132, busy: 20 });
        assert_eq!(parse_ticks("cpu 1 2"), None);
        let line = "7 (a) b) c) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0";
        assert_eq!(parse_process(line), Some(42));
        assert!(now().all > 0);
    }
}
