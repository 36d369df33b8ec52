//! What the paper did not ask: row sizes for every placement, many nodes, skew, faster hosts, a NIC of today, and when the NIC stops
//! paying.

use mapwire_gms::{ENTRY_BYTES, FRAME_BYTES, RowSize};

use super::bench::{Bench, Busy, Lookup};
use super::constants::smart_nic;
use super::crowd::{Crowd, Crowded};
use super::figures::{PLACES, ROW_SIZES, from_place};
use super::tables::{Tables, letter};
use crate::directory::{HostLoad, MachineError, Placement};
use crate::hardware::{Cost, Profile, Ps, US};
use crate::paper::numbers::{self, us};
use crate::paper::{Cell, Table};

use Placement::{Host, NicHostMemory, NicMemory};

const STATES: [HostLoad; 3] = [HostLoad::Idle, HostLoad::Active, HostLoad::Cold];

/// The costs of the host's processor.
const OF_HOST: [Cost; 8] = [
    Cost::HostInterrupt,
    Cost::HostHandler,
    Cost::HostReturn,
    Cost::HostScan,
    Cost::HostCold,
    Cost::HostRequest,
    Cost::HostServe,
    Cost::HostFault,
];

/// The costs of the NIC's processor.
const OF_NIC: [Cost; 9] = [
    Cost::NicReceive,
    Cost::NicDispatch,
    Cost::NicDecode,
    Cost::NicLookup,
    Cost::NicScan,
    Cost::NicScanInDma,
    Cost::NicPrepare,
    Cost::NicPrepareInDma,
    Cost::NicModify,
];

/// A processor that is so many times faster.
fn faster(profile: &Profile, costs: &[Cost], times: u64) -> Profile {
    let divided = |profile: Profile, &cost: &Cost| {
        let value = profile.of(cost) / times;
        profile.with(cost, value)
    };
    costs.iter().fold(profile.clone(), divided)
}

/// The largest value of `cost` up to `most` with which the NIC's lookup takes longer than the host's: below it the host wins.
fn break_even(tables: &Tables, cost: Cost, most: Ps) -> Result<Option<Ps>, MachineError> {
    let host_wins = |value| {
        let tables = Tables { profile: tables.profile.clone().with(cost, value), ..tables.clone() };
        let took = |placement| {
            let lookup = tables.bench(placement, HostLoad::Idle).lookup();
            lookup.map(|lookup| lookup.total_ps())
        };
        Ok::<_, MachineError>(took(Host)? < took(NicHostMemory)?)
    };
    // To a nanosecond.
    numbers::break_even(most, 1000, host_wins)
}

impl Tables {
    pub(super) fn beyond(&self) -> Result<Vec<Table>, MachineError> {
        Ok(vec![
            self.row_sizes()?,
            self.stops_paying()?,
            self.nodes()?,
            self.skew()?,
            self.speeds()?,
            self.today()?,
            self.today_breaks_even()?,
        ])
    }

    fn of_size(&self, row_size: RowSize) -> Self {
        Self { row_size, ..self.clone() }
    }

    fn row_sizes(&self) -> Result<Table, MachineError> {
        let columns = ["first", "8th", "32nd", "96th", "getpage", "NP at 10000/s, %"];
        let keys = ["system", "entries in a row"];
        let caption = "lookups that find the first, 8th … entry; getpage that finds the first; all idle";
        let mut table = Table::new("Row sizes", caption, "us", &keys, &columns);
        for placement in Placement::ALL {
            for row_size in ROW_SIZES {
                let bench = self.of_size(row_size).bench(placement, HostLoad::Idle);
                let lookups = bench.lookups(96)?;
                let place = |place: usize| us(lookups[place - 1].total_ps());
                let busy = bench.busy(10_000, None, 128)?;
                let lookups_ps = busy.load.nic_ps - busy.load.nic_sending_ps;
                let cells = [1, 8, 32, 96].map(place).into_iter();
                let more = [us(bench.latency()?), busy.percent(lookups_ps)];
                let entries = row_size.entries().to_string();
                table.row(&[placement.name(), &entries], cells.chain(more));
            }
        }
        let table_bytes = self.profile.nic_table_bytes;
        let pages = table_bytes / ENTRY_BYTES;
        table.note(&format!(
            "GMS-NP(NM)'s table has room for {pages} pages a node, {} MB: more cannot be listed, and putpage refuses them.",
            (pages as u64 * FRAME_BYTES) >> 20
        ));
        table.note("Row sizes matter to GMS-NP(HM) only: the others read what they scan in place. A row of 8 makes the first lookup faster, as its DMA ends before the message is prepared.");
        Ok(table)
    }

    pub(super) fn stops_paying(&self) -> Result<Table, MachineError> {
        let columns = ["host idle", "active", "cold"];
        let keys = ["system", "entries in a row"];
        let caption = "the first entry of a chain whose lookup takes longer on the NIC than on the host, of 128";
        let mut table = Table::new("When the NIC stops paying", caption, "entry", &keys, &columns);
        let of_state = |state| self.bench(Host, state).lookups(PLACES);
        let hosts: Vec<Vec<Lookup>> = STATES.into_iter().map(of_state).collect::<Result<_, _>>()?;
        for placement in [NicHostMemory, NicMemory] {
            for row_size in ROW_SIZES {
                let mut cells = Vec::new();
                for (state, host) in STATES.into_iter().zip(&hosts) {
                    let nic = self.of_size(row_size).bench(placement, state).lookups(PLACES)?;
                    let first = from_place(PLACES, |at| nic[at].total_ps() > host[at].total_ps());
                    cells.push(first.map_or(Cell::NONE, |place| Cell::new(1000 * place)));
                }
                let entries = row_size.entries().to_string();
                table.row(&[placement.name(), &entries], cells);
            }
        }
        table.note("§4.5 says that scanning more than 96 entries negates all benefits of the NIC. The paper does not say of which hosts. Here rows of 32 entries lose to cold hosts from entry 74 on, and to idle ones from entry 16 on.");
        Ok(table)
    }

    pub(super) fn crowd(&self, placement: Placement, nodes: u16) -> Crowd {
        Crowd {
            profile: self.profile.clone().with(Cost::HostFault, 0),
            placement,
            row_size: self.row_size,
            nodes,
            a_second: 2_000,
            hot_percent: None,
            seed: self.seed,
        }
    }

    fn nodes(&self) -> Result<Table, MachineError> {
        let columns = ["mean, us", "99 %, us", "HP, %", "NP, %"];
        let keys = ["system", "nodes"];
        let caption = "getpage where each node asks 2000 times a second and serves as any other";
        let mut table = Table::new("Nodes", caption, "", &keys, &columns);
        for placement in Placement::ALL {
            for nodes in [2, 4, 8, 16, 64, 256] {
                let Crowded { mean_ps, late_ps, all, .. } = self.crowd(placement, nodes).run()?;
                let busy = [all.percent(all.load.host_ps), all.percent(all.load.nic_ps)];
                let cells = [us(mean_ps), us(late_ps)].into_iter().chain(busy);
                table.row(&[placement.name(), &nodes.to_string()], cells);
            }
        }
        table.note("HP is the time that hosts handle messages, NP all that NICs' processors do, pages included. With 2 nodes half of the entries are at the requesting node itself, where GMS looks them up by a call, while GMS-NP(HM) asks its NIC (§3.3): GMS is faster then.");
        Ok(table)
    }

    pub(super) fn skew(&self) -> Result<Table, MachineError> {
        let columns = ["mean, us", "99 %, us", "HP there, %", "NP there, %"];
        let keys = ["system", "listed at one node"];
        let caption = "getpage in 16 nodes, 2000 times a second each, part of the pages listed at one node";
        let mut table = Table::new("Skew", caption, "", &keys, &columns);
        for placement in Placement::ALL {
            for percent in [0, 25, 50, 75, 100] {
                let crowd = Crowd { hot_percent: Some(percent), ..self.crowd(placement, 16) };
                let Crowded { mean_ps, late_ps, first, .. } = crowd.run()?;
                let part = |part_ps| Busy::percent(first, part_ps);
                let busy = [part(first.load.host_ps), part(first.load.nic_ps)];
                let cells = [us(mean_ps), us(late_ps)].into_iter().chain(busy);
                table.row(&[placement.name(), &format!("{percent} %")], cells);
            }
        }
        table.note("The node's own getpages and the pages that it serves are in its loads.");
        Ok(table)
    }

    pub(super) fn speeds(&self) -> Result<Table, MachineError> {
        let columns = ["GMS (I)", "GMS (C)", "HM (I)", "NM (I)"];
        let keys = ["host faster by", "NIC faster by"];
        let caption = "lookup of a first entry with faster processors, buses and wires as they were";
        let mut table = Table::new("Processors", caption, "us", &keys, &columns);
        for (host, nic) in [(1, 1), (2, 1), (4, 1), (8, 1), (1, 4), (4, 4), (8, 8), (16, 16)] {
            let profile = faster(&faster(&self.profile, &OF_HOST, host), &OF_NIC, nic);
            let tables = Self { profile, ..self.clone() };
            let took = |placement, state| {
                let lookup = tables.bench(placement, state).lookup();
                lookup.map(|lookup| us(lookup.total_ps()))
            };
            let cells = [
                took(Host, HostLoad::Idle)?,
                took(Host, HostLoad::Cold)?,
                took(NicHostMemory, HostLoad::Idle)?,
                took(NicMemory, HostLoad::Idle)?,
            ];
            table.row(&[&host.to_string(), &nic.to_string()], cells);
        }
        table.note("A host four times faster beats GMS-NP(HM) while it is idle, not with cold caches. Where both get faster at the same pace (§1.1), the NIC keeps its advantage; the DMA of rows keeps its time.");
        Ok(table)
    }

    /// The same questions of a SmartNIC of today.
    fn today(&self) -> Result<Table, MachineError> {
        let columns = ["lookup", "16th", "getpage", "HP at 10000/s, %"];
        let keys = ["system", "state"];
        let caption = "a BlueField-class SmartNIC; its constants are assumed for the most part";
        let mut table = Table::new("SmartNIC of today", caption, "us", &keys, &columns);
        let tables = self.on_smart_nic();
        let mut row = |name: &str, bench: &Bench| -> Result<(), MachineError> {
            let busy = bench.busy(10_000, None, 256)?;
            let cells = [
                us(bench.lookup()?.total_ps()),
                us(bench.lookups(16)?[15].total_ps()),
                us(bench.latency()?),
                busy.percent(busy.load.host_ps),
            ];
            table.row(&[name, letter(bench.state)], cells);
            Ok(())
        };
        for placement in Placement::ALL {
            for state in STATES {
                row(placement.name(), &tables.bench(placement, state))?;
            }
        }
        let polls = Bench {
            profile: tables.profile.clone().with(Cost::HostInterrupt, 0),
            ..tables.bench(Host, HostLoad::Idle)
        };
        row("GMS, hosts poll", &polls)?;
        table.note("Hosts that poll need no interrupts, but a processor core each, which is busy all the time; shown is what it handles messages for.");
        Ok(table)
    }

    fn on_smart_nic(&self) -> Self {
        Self { profile: smart_nic(), ..self.clone() }
    }

    pub(super) fn today_breaks_even(&self) -> Result<Table, MachineError> {
        let keys = ["machine", "cost"];
        let caption = "where the idle host's lookup and GMS-NP(HM)'s take the same, other costs as they are";
        let mut table = Table::new("Break-even", caption, "us", &keys, &["as it is", "break-even"]);
        let smart_nic = self.on_smart_nic();
        let polled = Self { profile: smart_nic.profile.clone().with(Cost::HostInterrupt, 0), ..smart_nic.clone() };
        for (tables, name) in
            [(self, self.profile.name), (&smart_nic, smart_nic.profile.name), (&polled, "the same, hosts poll")]
        {
            for (cost, what) in [
                (Cost::HostInterrupt, "host interrupt"),
                (Cost::NicDecode, "NIC decodes"),
                (Cost::NicPrepare, "NIC prepares"),
                (Cost::DmaLatency, "wait for a DMA read"),
            ] {
                let found = break_even(tables, cost, 100 * US)?;
                let cells = vec![
                    Cell::new(us(tables.profile.of(cost))),
                    found.map_or(Cell::NONE, |value| Cell::new(us(value))),
                ];
                table.row(&[name, what], cells);
            }
        }
        table.note("The NIC pays while interrupts cost more than their break-even, and while what the NIC does costs less than its own. Where there is none, the NIC pays from 0 to 100 us.");
        Ok(table)
    }
}
