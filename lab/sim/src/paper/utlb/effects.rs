//! How the cost of a lookup moves latency and bandwidth, on the machine on which VMMC was measured.

use mapwire_translation::{CacheConfig, DesignConfig, InterruptConfig};

use super::constants::on_vmmc;
use crate::computers::{ComputersError, Shape};
use crate::paper::Table;
use crate::paper::numbers::{mb_s, us};
use crate::paper::vmmc::bench::{Bench, Sources};

/// Bytes of the message by which bandwidth is measured.
const LARGE: u64 = 1 << 20;

fn bench(design: DesignConfig) -> Bench {
    Bench { profile: on_vmmc(), shape: Shape { design, ..Shape::default() } }
}

fn utlb(entries: usize) -> DesignConfig {
    DesignConfig::Hierarchical(CacheConfig::default().with_entries(entries).into())
}

/// Latency and bandwidth by what a lookup meets.
pub(super) fn tables() -> Result<Vec<Table>, ComputersError> {
    let columns = ["256 B, us", "4 KB, us", "1 MB, MB/s"];
    let caption = "one way on VMMC's machine, by what each lookup of a source meets";
    let keys = ["design", "each page is"];
    let mut table = Table::new("End to end", caption, "", &keys, &columns);
    let intr = |fill_pages| {
        let config = InterruptConfig::default().with_fill_pages(fill_pages);
        DesignConfig::Interrupt(config)
    };
    let vmmc = DesignConfig::Interrupt(InterruptConfig::VMMC);
    for (name, meets, design, sources) in [
        ("UTLB", "in the NIC", utlb(8192), Sources::Same),
        ("UTLB", "in its table on the host", utlb(1), Sources::InTurn),
        ("UTLB", "not pinned", utlb(8192), Sources::Fresh),
        ("Intr", "in the NIC", intr(1), Sources::Same),
        ("Intr", "not in the NIC", intr(1), Sources::Fresh),
        ("VMMC", "in the NIC", vmmc, Sources::Same),
        ("VMMC", "not in the NIC", vmmc, Sources::Fresh),
    ] {
        let bench = bench(design);
        let small = us(bench.one_way_from(256, sources)?);
        let page = us(bench.one_way_from(4096, sources)?);
        let large = mb_s(LARGE, bench.one_way_from(LARGE, sources)?);
        let cells = [small, page, large];
        table.row(&[name, meets], cells);
    }
    table.note("UTLB with the host's table is a NIC whose cache has one entry: each page of a message misses, at the sender and, as exports have no table of their own, at the receiver. Intr interrupts once a page, VMMC once for 32 pages that follow one another (VMMC §4.5).");
    table.note("The NIC's misses delay a small message by a few microseconds and cost bandwidth little, as the next page is looked up while one is loaded. What is not pinned costs UTLB a system call, by which the library pins all pages of a message before the NIC hears of it, and Intr an interrupt for each page. For one page both take 27 us: what the handler takes to pin was taken from Table 6 to be as much less than the call as the interrupt costs.");
    table.note("VMMC pins 32 pages in each interrupt, which takes as long as Table 1 says of a call for so many, less the 10 us that pinning in a handler saves. A short message pays for all of them. A long one is faster than with UTLB: an interrupt puts 32 translations into the NIC, while UTLB's NIC fetches them one by one after the call has pinned all pages.");
    Ok(vec![table])
}
