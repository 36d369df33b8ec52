//! What was published of NICs of today beside what the machine gives, and the papers' questions asked of them.

use mapwire_translation::{
    AnyDesign, CacheConfig, DesignConfig, DynamicHandleConfig, Frame, Lookup, Page, Process, TranslationDesign,
};

use super::constants::{rnic, smart_nic};
use crate::Random;
use crate::computers::{ComputersError, OnMiss};
use crate::hardware::{Cost, Origin, Profile, Ps, US};
use crate::paper::dynamic_handle::bench::{Bench, Link};
use crate::paper::numbers::{self, us_down as us};
use crate::paper::{Cell, Figure, Line, PaperError, Role, Table};

const MESSAGES: u64 = 20;
/// Packets whose data a NIC reads at a time: enough to keep the wire busy.
const LOADS: u16 = 8;

/// A cache of translations with lines of one entry.
fn cache(entries: usize) -> CacheConfig {
    CacheConfig::default().with_entries(entries).with_ways(4).with_line_entries(1).with_offset_per_process(false)
}

/// Where the table is, and who brings in what the NIC misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refill {
    /// The NIC reads the table in host memory (UTLB; RNICs).
    Reads,
    /// A thread of the host brings the entries in, and packets that miss are asked for again.
    AsksHost,
    /// The same, while packets that miss wait on the NIC.
    Waits,
}

impl Refill {
    const ALL: [Self; 3] = [Self::Reads, Self::AsksHost, Self::Waits];

    const fn name(self) -> &'static str {
        match self {
            Self::Reads => "hierarchical",
            Self::AsksHost => "dynamic-handle",
            Self::Waits => "dynamic-handle, waits",
        }
    }

    fn bench(self, profile: &Profile) -> Bench {
        let design = match self {
            Self::Reads => DesignConfig::Hierarchical(cache(16384).into()),
            Self::AsksHost | Self::Waits => {
                DesignConfig::DynamicHandle(DynamicHandleConfig::default().with_cache(cache(16384)))
            }
        };
        let on_miss = match self {
            Self::AsksHost => OnMiss::AsksForOne,
            _ => OnMiss::Waits,
        };
        Bench { profile: profile.clone(), link: Link::Other(on_miss), design, loads: LOADS, drawn_by: None }
    }

    /// One way, where so many percent of messages miss.
    fn latency(self, profile: &Profile, bytes: u64, percent: u64) -> Result<Ps, ComputersError> {
        let timed = self.bench(profile).ping_pong(bytes, MESSAGES, percent)?;
        // Answers never miss.
        Ok(timed.took_ps / (2 * MESSAGES))
    }

    fn miss(self, profile: &Profile, bytes: u64) -> Result<Ps, ComputersError> {
        let with = self.latency(profile, bytes, 100)?;
        Ok(2 * (with - self.latency(profile, bytes, 0)?))
    }
}

pub(super) fn all(seed: u64) -> Result<(Vec<Table>, Vec<Figure>), PaperError> {
    let (cache_sizes, figure) = cache_sizes(seed)?;
    let tables = vec![latencies()?, misses()?, designs()?, cache_sizes, pays()?, assumed()?];
    Ok((tables, vec![figure]))
}

/// Latencies of an RNIC, beside a published measurement.
fn latencies() -> Result<Table, ComputersError> {
    let caption = "one way between two RNICs, back to back; measured: Potter, RWTH Aachen 2018, ib_send_lat, reliable connections, packets of 4 KB";
    let mut table = Table::new("Latency", caption, "us", &["bytes"], &["RNIC", "SmartNIC"]);
    let (rnic, smart_nic) = (rnic(), smart_nic());
    for (bytes, published, role) in [
        (32, Some(83), Role::Input),
        (1 << 10, Some(161), Role::Predicted),
        (4 << 10, Some(228), Role::Predicted),
        (32 << 10, Some(457), Role::Predicted),
        (64 << 10, None, Role::New),
    ] {
        let milli = us(Refill::Reads.latency(&rnic, bytes, 0)?);
        let cell = match published {
            Some(hundredths) => Cell::beside(milli, numbers::hundredths(10 * hundredths), role),
            None => Cell::new(milli),
        };
        let smart = us(Refill::Reads.latency(&smart_nic, bytes, 0)?);
        table.row(&[&bytes.to_string()], vec![cell, Cell::new(smart)]);
    }
    table.note("Up to 128 bytes travel in the command here, up to 188 there. What 1 KB takes more than 32 bytes is nearly all the read over PCIe, whose latency is assumed: `Assumed constants` varies it.");
    Ok(table)
}

/// What misses do to an RNIC, beside what was published of one.
fn misses() -> Result<Table, ComputersError> {
    let caption = "stores of 32 bytes to pages whose translations are not on the NIC, to those that are";
    let keys = ["what", "unit", "published bound"];
    let mut table = Table::new("Misses", caption, "", &keys, &["value"]);
    let once = rnic();
    let twice = once.clone().with(Cost::DmaLatency, 2 * once.of(Cost::DmaLatency));
    let hit = Refill::Reads.latency(&once, 32, 0)?;
    for (reads, profile) in [("one read", once), ("two reads", twice)] {
        let miss = Refill::Reads.miss(&profile, 32)?;
        let slower = (1000 * (hit + miss) / hit) as i64;
        let what = format!("latency with a miss / without, {reads} of the table");
        table.row(&[&what, "ratio", "up to 2"], vec![Cell::new(slower)]);
        let rate = |percent| Refill::Reads.bench(&profile).stream(32, MESSAGES, percent);
        let (without, with) = (rate(0)?.took_ps, rate(100)?.took_ps);
        let lost = 100_000 - (100_000 * u128::from(without) / u128::from(with)) as i64;
        let what = format!("throughput that misses take, {reads} of the table");
        table.row(&[&what, "%", "up to 40"], vec![Cell::new(lost)]);
    }
    table.note("Published: Fragkouli, Vanbever: Faster Offloads by Unloading them (2025), bounds of measurements on an RNIC. A NIC that looks up the key, then the page, reads twice. A bound says how far it may go, and is not counted as predicted. One read of the table stays within that of the latency, two exceed it. Throughput exceeds its bound with both: the NIC here does nothing else while it waits for the table.");
    Ok(table)
}

fn designs() -> Result<Table, ComputersError> {
    let columns = ["hit", "miss adds", "misses for 3 %, %"];
    let keys = ["machine", "design", "bytes"];
    let caption = "one way with a hit, what a miss adds, and the share of misses, in %, that adds 3 % to the mean";
    let mut table = Table::new("Designs", caption, "us", &keys, &columns);
    for profile in [rnic(), smart_nic()] {
        for way in Refill::ALL {
            for bytes in [64, 4096] {
                let hit = way.latency(&profile, bytes, 0)?;
                let miss = way.miss(&profile, bytes)?;
                let share = (100_000 * 3 * hit / (100 * miss.max(1))) as i64;
                let cells = [us(hit), us(miss), share];
                table.row(&[profile.name, way.name(), &bytes.to_string()], cells);
            }
        }
    }
    table.note("hierarchical: the NIC reads the table in host memory, all pages pinned beforehand. dynamic-handle: a thread of the host pins and brings in what misses; the packet is dropped and asked for. The last: the same, while the packet waits on the NIC.");
    table.note("Shen et al. (NP-RDMA, 2023) pin nothing and handle a minor fault in software in 3.5 to 5.7 us, 500 times faster than on-demand paging of RNICs: about what a miss that the host serves takes here, where the host need not be interrupted.");
    Ok(table)
}

fn cache_sizes(seed: u64) -> Result<(Table, Figure), PaperError> {
    const ENTRIES: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, 64 << 10];
    const MEGABYTES: [u64; 6] = [1, 4, 16, 64, 256, 1024];
    let columns = ENTRIES.map(|entries| format!("{} K entries", entries >> 10));
    let caption = "mean of stores of 64 bytes to random pages of so much registered memory on the RNIC";
    let keys = ["memory", "pages"];
    let mut table = Table::new("Translation cache", caption, "us", &keys, &columns);
    let profile = rnic();
    let hit = Refill::Reads.latency(&profile, 64, 0)?;
    let miss = Refill::Reads.miss(&profile, 64)?;
    let mut lines =
        ENTRIES.map(|entries| Line { name: format!("{} K entries, pages of 4 KB", entries >> 10), points: Vec::new() });
    for (page_kb, pages_name) in [(4, "4 KB"), (2048, "2 MB")] {
        for megabytes in MEGABYTES {
            let pages = (megabytes << 10).div_ceil(page_kb);
            let mut cells = Vec::new();
            for (entries, line) in ENTRIES.into_iter().zip(&mut lines) {
                let share = miss_share(entries, pages, seed)?;
                let mean = hit + miss * share / 1_000_000;
                cells.push(Cell::new(us(mean)));
                if page_kb == 4 {
                    line.points.push((megabytes as i64, us(mean)));
                }
            }
            table.row(&[&format!("{megabytes} MB"), pages_name], cells);
        }
    }
    table.note("Random pages have no locality: the cache must hold all of the memory in use. 4 K entries reach 16 MB with pages of 4 KB, and 8 GB with pages of 2 MB. Programs with locality need less: `lab study` replays theirs.");
    let figure = Figure::lines(
        "Translation cache",
        "mean of stores of 64 bytes to random pages, by registered memory",
        ("MB", "us"),
        lines,
    );
    Ok((table, figure))
}

/// Lookups of random pages that miss, in millionths: the firmware's design, warm.
fn miss_share(entries: usize, pages: u64, seed: u64) -> Result<u64, PaperError> {
    let design = cache(entries).into();
    let mut design = AnyDesign::new(&DesignConfig::Hierarchical(design))?;
    let process = Process(0);
    // A design that was just made has no process, and all pages are of the address space.
    let _ = design.open(process);
    for page in 0..pages {
        let _ = design.install(process, Page(page), Frame(page));
    }
    let mut random = Random::new(seed);
    let mut misses = |count: u64| {
        let lookups = (0..count).map(|_| design.lookup(process, Page(random.below(pages))));
        lookups.filter(|lookup| matches!(lookup, Lookup::Miss(_))).count() as u64
    };
    let warm = 4 * entries as u64;
    misses(warm);
    let count = 20_000;
    Ok(misses(count) * 1_000_000 / count)
}

/// When the NIC's processor pays: reading the table itself, or asking the host.
fn pays() -> Result<Table, ComputersError> {
    let columns = ["as it is", "break-even"];
    let keys = ["machine", "cost"];
    let caption = "where a miss of a page that is pinned costs the same whether the NIC reads the table or a thread of the host brings the entry in; other costs as they are";
    let mut table = Table::new("Break-even", caption, "us", &keys, &columns);
    for profile in [rnic(), smart_nic()] {
        for (host, interrupt) in [("interrupted", profile.of(Cost::HostInterrupt)), ("polls", 0)] {
            let profile = profile.clone().with(Cost::HostInterrupt, interrupt).with(Cost::HostPinServing, 0);
            for (cost, what) in [
                (Cost::DmaLatency, "wait for a DMA read"),
                (Cost::HostHandler, "host's handler"),
                (Cost::NicMiss, "NIC finds the table"),
            ] {
                let found = break_even(&profile, cost)?;
                let cells =
                    vec![Cell::new(us(profile.of(cost))), found.map_or(Cell::NONE, |value| Cell::new(us(value)))];
                let name = format!("{}, host {host}", profile.name);
                table.row(&[&name, what], cells);
            }
        }
    }
    table.note("The NIC pays while a DMA read and what it does itself cost less than their break-even, and the host's handler costs more than its own. A host that polls needs a core for it. A dash: one of both wins from 0 to 20 us.");
    Ok(table)
}

/// The value of a cost, up to 20 us, from which on the other way is the cheaper one.
fn break_even(profile: &Profile, cost: Cost) -> Result<Option<Ps>, ComputersError> {
    let nic_wins = |value| {
        let profile = profile.clone().with(cost, value);
        let costs = |way: Refill| way.miss(&profile, 64);
        Ok::<_, ComputersError>(costs(Refill::Reads)? < costs(Refill::AsksHost)?)
    };
    // To ten nanoseconds.
    numbers::break_even(20 * US, 10_000, nic_wins)
}

/// Whether the answers hold when constants are others that nobody states.
fn assumed() -> Result<Table, ComputersError> {
    let columns = ["4 KB", "miss, NIC reads", "miss, host", "miss, host polls"];
    let keys = ["machine", "constant", "value"];
    let caption =
        "latency and what misses add when a constant that nobody states is half or twice as much, the rest as it is";
    let mut table = Table::new("Assumed constants", caption, "us", &keys, &columns);
    let mut row = |name: &str, value: &str, profile: &Profile| -> Result<[Ps; 3], ComputersError> {
        let polls = profile.clone().with(Cost::HostInterrupt, 0);
        let misses =
            [Refill::Reads.miss(profile, 64)?, Refill::AsksHost.miss(profile, 64)?, Refill::AsksHost.miss(&polls, 64)?];
        let latency = Refill::Reads.latency(profile, 4096, 0)?;
        let cells = [latency, misses[0], misses[1], misses[2]].map(us);
        table.row(&[profile.name, name, value], cells);
        Ok(misses)
    };
    let (mut rows, mut nic_wins, mut polled_wins) = (0, 0, 0);
    for profile in [rnic(), smart_nic()] {
        row("all", "as they are", &profile)?;
        for (name, word, constant) in profile.varied(|it| it.origin == Origin::Assumed) {
            let varied = profile.clone().with(constant.cost, constant.value);
            let [reads, host, polled] = row(&name, word, &varied)?;
            rows += 1;
            nic_wins += u32::from(reads < host);
            polled_wins += u32::from(reads < polled);
        }
    }
    table.note(&format!(
        "In {nic_wins} of {rows} rows a miss is cheaper where the NIC reads the table than where the host is interrupted, in {polled_wins} it is cheaper than where the host polls."
    ));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(table: &Table, keys: &[&str], column: &str) -> i64 {
        table.cell(keys, column).unwrap().milli.unwrap()
    }

    #[test]
    fn the_nic_pays_unless_the_host_polls_and_a_read_over_the_bus_is_slow() {
        let table = pays().unwrap();
        for profile in [rnic(), smart_nic()] {
            let at = |host: &str| {
                let name = format!("{}, host {host}", profile.name);
                value(&table, &[&name, "wait for a DMA read"], "break-even")
            };
            assert!(at("interrupted") > 6_000);
            assert!((700..2_000).contains(&at("polls")), "{}", at("polls"));
        }
    }

    #[test]
    fn a_cache_that_holds_all_pages_never_misses_and_one_of_half_of_them_misses_half() {
        assert_eq!(miss_share(1 << 10, 256, 1).unwrap(), 0);
        let half = miss_share(1 << 10, 2 << 10, 1).unwrap();
        assert!((480_000..520_000).contains(&half), "{half}");
    }
}
