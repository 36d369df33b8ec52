//! The micro-benchmarks (Figure 4), the miss penalty (§V.C), and what other answers to a miss would win.

use super::bench::{Bench, Link, MOST_BYTES, dynamic_handles};
use crate::computers::{ComputersError, Missed, OnMiss};
use crate::hardware::{Cost, Profile, Ps, US};
use crate::paper::numbers::us_down as us;
use crate::paper::{Cell, Figure, Line, Table};

const SIZES: [u64; 5] = [64, 1 << 10, 4 << 10, 16 << 10, MOST_BYTES];
/// Percent of lookups that miss: all pages of so many messages.
const RATIOS: [u64; 8] = [0, 5, 10, 20, 40, 60, 80, 100];
/// Messages of a run: so many that 5 % are a whole number.
const MESSAGES: u64 = 40;
/// Misses of which the distribution is taken.
const SAMPLES: u64 = 400;

/// The machine that is measured.
#[derive(Clone, Debug)]
pub(super) struct Micro {
    pub(super) profile: Profile,
    pub(super) seed: u64,
}

/// What a link does about a miss, and what it is called.
fn answers(timeout_ps: Ps) -> [(&'static str, Link); 5] {
    [
        ("times out", Link::Other(OnMiss::TimesOut(timeout_ps))),
        ("asks for all", Link::Other(OnMiss::AsksForAll)),
        ("asks for one", Link::Other(OnMiss::AsksForOne)),
        ("the firmware's", Link::Firmware),
        ("waits on the NIC", Link::Other(OnMiss::Waits)),
    ]
}

/// Time from a miss to what ended it, of all that ended, in order of length.
fn spans(missed: &[Missed], end: impl Fn(&Missed) -> Option<Ps>) -> Vec<Ps> {
    let mut spans: Vec<Ps> = missed.iter().filter_map(|it| Some(end(it)? - it.at_ps)).collect();
    spans.sort_unstable();
    spans
}

fn mean(spans: &[Ps]) -> Ps {
    spans.iter().sum::<Ps>() / spans.len().max(1) as u64
}

impl Micro {
    fn bench(&self, link: Link) -> Bench {
        Bench { profile: self.profile.clone(), link, design: dynamic_handles(), loads: 1, drawn_by: Some(self.seed) }
    }

    fn answers(&self) -> [(&'static str, Link); 5] {
        answers(self.profile.of(Cost::LinkTimeout))
    }

    /// Half of a round trip, where so many percent of requests miss.
    pub(super) fn latency(&self, link: Link, bytes: u64, percent: u64) -> Result<Ps, ComputersError> {
        let timed = self.bench(link).ping_pong(bytes, MESSAGES, percent)?;
        Ok(timed.took_ps / (2 * MESSAGES))
    }

    /// Thousandths of MB/s one way.
    fn bandwidth(&self, link: Link, bytes: u64, percent: u64) -> Result<i64, ComputersError> {
        let timed = self.bench(link).stream(bytes, MESSAGES, percent)?;
        // Bytes a microsecond are MB/s.
        let moved = u128::from(MESSAGES * bytes) * u128::from(US) * 1000;
        Ok((moved / u128::from(timed.took_ps.max(1))) as i64)
    }

    /// How long a miss keeps what is after it, on average: until what it dropped has come again and was taken.
    pub(super) fn penalty(&self, link: Link) -> Result<Ps, ComputersError> {
        let with = self.bench(link).ping_pong(4096, MESSAGES, 100)?;
        let without = self.bench(link).ping_pong(4096, MESSAGES, 0)?;
        Ok((with.took_ps - without.took_ps) / MESSAGES)
    }

    /// Figure 4 as two tables, what the text says of it, and the figures.
    pub(super) fn figure_4(&self) -> Result<(Vec<Table>, Vec<Figure>), ComputersError> {
        let link = Link::Other(OnMiss::TimesOut(self.profile.of(Cost::LinkTimeout)));
        let columns = RATIOS.map(|percent| format!("{percent} %"));
        let table = |name, caption, unit| Table::new(name, caption, unit, &["bytes"], &columns);
        let mut latency =
            table("Figure 4, latency", "half of a round trip, by the share of the requests' lookups that miss", "us");
        let mut bandwidth = table("Figure 4, bandwidth", "messages one way, by the share of lookups that miss", "MB/s");
        let (mut latencies, mut bandwidths) = (Vec::new(), Vec::new());
        for bytes in SIZES {
            let time = |percent| self.latency(link, bytes, percent).map(us);
            let times = RATIOS.into_iter().map(time).collect::<Result<Vec<i64>, _>>()?;
            let rate = |percent| self.bandwidth(link, bytes, percent);
            let rates = RATIOS.into_iter().map(rate).collect::<Result<Vec<i64>, _>>()?;
            let name = bytes.to_string();
            latency.row(&[&name], times.iter().copied());
            bandwidth.row(&[&name], rates.iter().copied());
            latencies.push(times);
            bandwidths.push(rates);
        }
        latency.note("The plots of the paper's Figure 4 have no numbers in the text that this project has; `Figure 4, as described` compares what the text says of them.");
        latency.note("Cache lines have one entry here, so that any share of lookups can miss: a message of 64 KB looks 16 pages up. With longer lines, one miss brings in the next pages, too.");
        let timeout_us = us(self.profile.of(Cost::LinkTimeout)) / 1000;
        latency.note(&format!(
            "A sender sends again when it has no ack after {timeout_us} us, which the text does not state: `Assumed constants` varies it."
        ));
        let figures = [("Figure 4, latency", "us", &latencies), ("Figure 4, bandwidth", "MB/s", &bandwidths)];
        let figures = figures.map(|(name, y, values)| figure(name, y, values));
        let described = described(&latencies, &bandwidths);
        Ok((vec![latency, bandwidth, described], figures.into()))
    }

    /// What other answers to a miss would win.
    pub(super) fn negative_acks(&self) -> Result<Table, ComputersError> {
        let answers = self.answers();
        let columns = answers.map(|answer| answer.0);
        let keys = ["bytes", "misses", "what"];
        let caption = "latency and bandwidth by what becomes of a packet that misses";
        let mut table = Table::new("Negative acks", caption, "", &keys, &columns);
        for bytes in [64, 4 << 10, MOST_BYTES] {
            for percent in [5, 20, 100] {
                let keys = [bytes.to_string(), format!("{percent} %")];
                let time = |(_, link)| self.latency(link, bytes, percent).map(us);
                let times = answers.into_iter().map(time).collect::<Result<Vec<i64>, _>>()?;
                table.row(&[&keys[0], &keys[1], "us"], times);
                let rate = |(_, link)| self.bandwidth(link, bytes, percent);
                let rates = answers.into_iter().map(rate).collect::<Result<Vec<i64>, _>>()?;
                table.row(&[&keys[0], &keys[1], "MB/s"], rates);
            }
        }
        table.note("The paper's link times out. A link that asks for all sends a request as soon as the host has acted, and drops what comes meanwhile. One that asks for one packet keeps what came behind it. The firmware's own link does the same (`LinkKind::Again`); its windows, acks and probes take their time besides. The last keeps the packet itself in a buffer of the NIC, and takes nothing else meanwhile.");
        Ok(table)
    }

    /// How much the time matters that the paper does not state.
    pub(super) fn assumed(&self) -> Result<Table, ComputersError> {
        let columns =
            ["4 KB latency", "64 KB latency", "4 KB MB/s", "64 KB MB/s", "a miss, asked for", "4 KB MB/s, asked for"];
        let keys = ["constant", "value"];
        let caption = "5 % of lookups miss, and the link times out, or asks for all; a constant that nobody states is another, the rest as it is";
        let mut table = Table::new("Assumed constants", caption, "us", &keys, &columns);
        let mut row = |name: &str, value: &str, profile: Profile| -> Result<(), ComputersError> {
            let timeout_ps = profile.of(Cost::LinkTimeout);
            let micro = Self { profile, ..self.clone() };
            let link = Link::Other(OnMiss::TimesOut(timeout_ps));
            let cells = [
                us(micro.latency(link, 4096, 5)?),
                us(micro.latency(link, MOST_BYTES, 5)?),
                micro.bandwidth(link, 4096, 5)?,
                micro.bandwidth(link, MOST_BYTES, 5)?,
                us(micro.penalty(Link::Other(OnMiss::AsksForAll))?),
                micro.bandwidth(Link::Other(OnMiss::AsksForAll), 4096, 5)?,
            ];
            table.row(&[name, value], cells);
            Ok(())
        };
        row("all", "as they are", self.profile.clone())?;
        let assumed = self.profile.constants().iter();
        let assumed = assumed.filter(|row| row.origin == crate::hardware::Origin::Assumed);
        for constant in assumed {
            let values = [
                ("a quarter", constant.value / 4),
                ("half", constant.value / 2),
                ("double", 2 * constant.value),
                ("four times", 4 * constant.value),
            ];
            let values = match constant.cost {
                Cost::MissProcessingEven => &[("50 %", 50), ("100 %", 100)][..],
                Cost::LinkTimeout | Cost::LinkWindow => &values[..],
                _ => &values[1..3],
            };
            for &(word, value) in values {
                let profile = self.profile.clone().with(constant.cost, value);
                row(&format!("{:?}", constant.cost), word, profile)?;
            }
        }
        table.note("To the paper's link only the timeout matters: nearly all of a miss is waiting for it. To a link that asks, it matters how processing times spread within the paper's range: whether short ones are as likely as long ones, or (100 %) all times between.");
        Ok(table)
    }

    /// The distribution of the miss penalty, and of what it is made of.
    pub(super) fn penalties(&self) -> Result<Table, ComputersError> {
        let columns = ["least", "10 %", "half", "90 %", "99 %", "most", "mean"];
        let caption = "from a miss to what ends it: how long the shortest take, a tenth of all, half, …";
        let mut table = Table::new("Miss penalty", caption, "us", &["until", "link"], &columns);
        for (at, (name, link)) in self.answers().into_iter().take(3).enumerate() {
            let timed = self.bench(link).ping_pong(64, SAMPLES, 100)?;
            let mut row = |what: &str, link: &str, spans: &[Ps]| {
                let place = |percent: usize| {
                    let at = (spans.len() * percent / 100).min(spans.len().saturating_sub(1));
                    spans.get(at).copied().unwrap_or(0)
                };
                let places = [0, 10, 50, 90, 99, 100].map(place);
                let cells = places.into_iter().chain([mean(spans)]).map(|ps| Cell::new(us(ps)));
                table.row(&[what, link], cells);
            };
            if at == 0 {
                let filled = spans(&timed.missed, |it| it.filled_ps);
                row("the entries are there", "any", &filled);
            }
            let taken = spans(&timed.missed, |it| it.taken_ps);
            row("the packet is taken", name, &taken);
        }
        table.note("The paper's penalty ends when the entries are there. Of its parts it states the ranges: a delay of 0 to 50 us up to the thread, and 5 to 500 us of processing. All delays between are taken to be as likely, and short times of processing as likely as long ones; `Assumed constants` varies that.");
        Ok(table)
    }
}

fn figure(name: &'static str, y: &'static str, values: &[Vec<i64>]) -> Figure {
    let line = |(bytes, values): (u64, &Vec<i64>)| Line {
        name: format!("{bytes} bytes"),
        points: RATIOS.into_iter().map(|percent| percent as i64).zip(values.iter().copied()).collect(),
    };
    let caption = "messages of several sizes, by the share of lookups that miss";
    Figure::lines(name, caption, ("% of lookups that miss", y), SIZES.into_iter().zip(values).map(line))
}

/// What §V.B says of Figure 4, with what ours says of it.
fn described(latencies: &[Vec<i64>], bandwidths: &[Vec<i64>]) -> Table {
    let mut table = Table::new(
        "Figure 4, as described",
        "what §V.B says of Figure 4, and whether it is so here",
        "",
        &["the paper", "here", "measure"],
        &["value"],
    );
    let mut row = |said: &str, holds, measure: &str, milli| table.said(said, holds, measure, milli);
    let last = RATIOS.len() - 1;
    let off_the_line = |values: &Vec<i64>| {
        let rise = values[last] - values[0];
        let off = RATIOS.iter().zip(values).map(|(&percent, &value)| {
            let line = values[0] + rise * percent as i64 / 100;
            100_000 * (value - line).abs() / line.max(1)
        });
        off.max().unwrap_or(0)
    };
    let off = latencies.iter().map(off_the_line).max().unwrap_or(0);
    row("latency increases linearly with the miss ratio", off < 10_000, "farthest from a line, %", off);
    let ten_percent = 2;
    let left = |values: &Vec<i64>| 100_000 * values[ten_percent] / values[0].max(1);
    let most_left = bandwidths.iter().map(left).max().unwrap_or(0);
    row("bandwidth degrades rapidly", most_left < 90_000, "most that is left with 10 % of misses, %", most_left);
    let rise = |values: &Vec<i64>| values[last] - values[0];
    let rises: Vec<i64> = latencies.iter().map(rise).collect();
    row(
        "a miss costs larger messages more: latency",
        rises.windows(2).all(|pair| pair[0] <= pair[1]),
        "of 64 KB / of 64 bytes",
        1000 * rises[rises.len() - 1] / rises[0].max(1),
    );
    let lost = |values: &Vec<i64>| values[0] - values[ten_percent];
    let losses: Vec<i64> = bandwidths.iter().map(lost).collect();
    row(
        "a miss costs larger messages more: bandwidth",
        losses.windows(2).all(|pair| pair[0] <= pair[1]),
        "MB/s lost of 64 KB with 10 % of misses",
        losses[losses.len() - 1],
    );
    table
}
