//! What the paper did not ask: other thresholds, the project's own command, constants that nobody states, and why ours differ.

use super::bench::Bench;
use super::tables::Tables;
use crate::computers::ComputersError;
use crate::hardware::{Constant, Cost, NS, Origin, Profile};
use crate::paper::numbers::{one_decimal, us};
use crate::paper::{Cell, Table};

/// Thresholds of short sends that are tried (§5.3).
const THRESHOLDS: [u64; 3] = [64, 128, 256];

/// Words of a command header of the firmware: 48 bytes.
const OWN_COMMAND_WORDS: u64 = (mapwire_wire::COMMAND_BYTES / 4) as u64;

impl Tables {
    pub(super) fn beyond(&self) -> Result<Vec<Table>, ComputersError> {
        Ok(vec![self.thresholds()?, self.experiments()?, self.own_command()?, self.assumed()?])
    }

    fn thresholds(&self) -> Result<Table, ComputersError> {
        let columns = ["sync, 64", "sync, 128", "sync, 256", "latency, 64", "latency, 128", "latency, 256"];
        let caption =
            "synchronous overhead and latency one way if sends of up to 64, 128 or 256 bytes go by the command queue";
        let mut table = Table::new("Thresholds", caption, "us", &["bytes"], &columns);
        for bytes in [48, 64, 68, 96, 128, 132, 192, 256, 260] {
            let (mut overheads, mut latencies) = (Vec::new(), Vec::new());
            for short_bytes in THRESHOLDS {
                let mut bench = self.0.clone();
                bench.shape.short_bytes = short_bytes;
                overheads.push(Cell::new(us(bench.overhead(bytes, true)?)));
                latencies.push(Cell::new(us(bench.one_way(bytes)?)));
            }
            let cells = overheads.into_iter().chain(latencies);
            table.row(&[&bytes.to_string()], cells);
        }
        table.note("§5.3 says that a threshold of 64 bytes would dramatically increase the synchronous overhead of what lies between 64 and 128 bytes, and leave latency much as it is. Ours agrees: compare the first two columns of each at 96 bytes. Latency would even fall at 128 bytes, as the LANai copies a short send's data word by word.");
        table.note("A threshold of 256 bytes is beyond what a command of the firmware carries: such sends are carried out as long ones, and charged as if their data had been written into the queue and copied there.");
        Ok(table)
    }

    fn experiments(&self) -> Result<Table, ComputersError> {
        let columns = ["word, us", "one way, MB/s", "both ways, MB/s"];
        let caption = "predictions when a part of the machine is left out";
        let mut table = Table::new("Why ours differ", caption, "", &["without"], &columns);
        let rows: [(&str, &[Cost]); 5] = [
            ("nothing", &[]),
            ("DMA that slows the processor", &[Cost::NicSlowedByDma, Cost::NicSlowedByTwo]),
            ("passes through the main loop", &[Cost::NicLoop]),
            ("the time until a program sees a change", &[Cost::HostNotice]),
            ("the library's time before a post", &[Cost::HostPost]),
        ];
        let mut all = Vec::new();
        for (name, costs) in rows {
            let none = |profile: Profile, &cost: &Cost| profile.with(cost, 0);
            let tables = self.with(costs.iter().fold(self.profile().clone(), none));
            let maxima = tables.maxima()?;
            let word = us(tables.0.one_way(4)?);
            all.push([word, maxima.one_way, maxima.both_ways]);
            let cells = [word, maxima.one_way, maxima.both_ways];
            table.row(&[name], cells);
        }
        let [word, one_way, both_ways] = all[0];
        table.note(&format!(
            "One way, {} MB/s: in the tight loop the DMA from the host is programmed while the network's is active, which slows it; with a processor that DMA does not slow, {} MB/s.",
            one_decimal(one_way),
            one_decimal(all[1][1])
        ));
        table.note(&format!(
            "Both ways, {} MB/s: two DMAs of 37.2 us share the engine in each pair of packets, and the passes through the main loop lie between them. Without the passes it would be {} MB/s, without DMA that slows them {} MB/s.",
            one_decimal(both_ways),
            one_decimal(all[2][2]),
            one_decimal(all[1][2])
        ));
        table.note(&format!(
            "A word, {} us: that a program sees a change later than it happens is assumed (0.2 us), and the library's 2.4 us lie before the post in full.",
            one_decimal(word)
        ));
        Ok(table)
    }

    fn own_command(&self) -> Result<Table, ComputersError> {
        let columns = ["paper's", "firmware's"];
        let caption = "with a command of the paper's five words, and with the firmware's header of 48 bytes";
        let mut table = Table::new("The command", caption, "us", &["what"], &columns);
        let own = self.profile().clone().with(Cost::CommandWords, OWN_COMMAND_WORDS + 1);
        let own = self.with(own);
        let both = |run: &dyn Fn(&Bench) -> Result<u64, ComputersError>| {
            Ok::<_, ComputersError>(vec![Cell::new(us(run(&self.0)?)), Cell::new(us(run(&own.0)?))])
        };
        table.row(&["latency of a word"], both(&|bench| bench.one_way(4))?);
        table.row(&["asynchronous send of a page"], both(&|bench| bench.overhead(4096, false))?);
        table.note("The firmware's command is made for memory that is shared with the NIC; over a bus, each of its words costs a write.");
        Ok(table)
    }

    /// Predictions with each constant halved and doubled that this paper does not state.
    fn assumed(&self) -> Result<Table, ComputersError> {
        let columns = ["word, us", "one way, MB/s", "both ways, MB/s", "sync 256 B, us"];
        let caption = "predictions when a constant is another that this paper does not state; the rest as it is";
        let keys = ["constant", "value"];
        let mut table = Table::new("Assumed constants", caption, "", &keys, &columns);
        let mut row = |name: &str, value: &str, profile: Profile| {
            let tables = self.with(profile);
            let maxima = tables.maxima()?;
            let word = us(tables.0.one_way(4)?);
            let overhead = us(tables.0.overhead(256, true)?);
            let cells = [word, maxima.one_way, maxima.both_ways, overhead];
            table.row(&[name, value], cells);
            Ok::<_, ComputersError>(())
        };
        row("all", "as they are", self.profile().clone())?;
        let of_others = [Cost::NicTranslate, Cost::NicSlowedByDma, Cost::DmaSetup];
        let split = [Cost::NicLoop, Cost::NicPickUp, Cost::NicStartNetwork];
        let is_open =
            |it: &Constant| it.origin == Origin::Assumed || of_others.contains(&it.cost) || split.contains(&it.cost);
        for (name, word, constant) in self.profile().varied(is_open) {
            row(&name, word, self.profile().clone().with(constant.cost, constant.value))?;
        }
        for (name, value, cost, is) in [
            ("NicLoop", "5 us of §6's 4-6 us", Cost::NicLoop, 3_500 * NS),
            ("NicLoop", "6 us", Cost::NicLoop, 4_500 * NS),
            ("NicSlowedByDma", "33 % (GMS-NP §4.4)", Cost::NicSlowedByDma, 33),
        ] {
            row(name, value, self.profile().clone().with(cost, is))?;
        }
        table.note("The latency of a word and the bandwidth both ways depend on where in §6's range the machine is: it has the least.");
        table.note(
            "What one constant takes away from another that is known only together with it is not given back here.",
        );
        Ok(table)
    }
}
