//! Samples as a table: totals, or rates since the sample before.

use super::Sample;

pub(crate) const TITLES: [&str; 14] = [
    "rank", "host", "pid", "state", "sent", "in place", "received", "packets", "fetches", "faults", "rtt", "resent",
    "timeouts", "rejected",
];

/// A sample as cells: since `before`, `seconds` ago, a second; or from the start.
pub(crate) fn cells(now: &Sample, before: Option<(&Sample, f64)>) -> [String; TITLES.len()] {
    let figure = |names: &[&str]| {
        let sum = |sample: &Sample| names.iter().map(|name| sample.figure(name) as f64).sum::<f64>();
        match before {
            Some((before, seconds)) if seconds > 0.0 => ((sum(now) - sum(before)) / seconds).max(0.0),
            Some(_) => 0.0,
            None => sum(now),
        }
    };
    let rtt = now.figure("link_rtt_ns");
    [
        now.rank.to_string(),
        now.host.to_string(),
        if now.pid == 0 { "-".into() } else { now.pid.to_string() },
        now.state.to_string(),
        bytes(figure(&["bytes_sent"])),
        bytes(figure(&["bytes_stored_in_place", "moved_bytes"])),
        bytes(figure(&["bytes_received"])),
        short(figure(&["packets_sent", "packets_received"])),
        short(figure(&["fetches"])),
        short(figure(&["read_faults", "write_faults"])),
        if rtt == 0 { "-".into() } else { format!("{:.1} us", rtt as f64 / 1e3) },
        short(figure(&["link_packets_resent"])),
        short(figure(&["link_timeouts"])),
        short(figure(&["datagrams_rejected", "packets_rejected"])),
    ]
}

/// The sum of samples, as a sample of no rank; gauges keep their largest.
fn total(samples: &[Sample]) -> Sample {
    let mut total = Sample::absent(0, 0);
    for sample in samples {
        let words = sample.words.iter().zip(super::sample::METRICS.iter());
        for (sum, (word, metric)) in total.words.iter_mut().zip(words) {
            *sum = if metric.is_gauge { (*sum).max(*word) } else { sum.wrapping_add(*word) };
        }
    }
    total
}

/// Lines of a table of totals, with a line of sums.
pub(crate) fn lines(samples: &[Sample]) -> Vec<String> {
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(samples.iter().map(|sample| cells(sample, None)));
    if samples.len() > 1 {
        let mut sums = cells(&total(samples), None);
        for (cell, text) in sums.iter_mut().zip(["all", "", "", ""]) {
            *cell = text.into();
        }
        rows.push(sums);
    }
    let widths: [usize; TITLES.len()] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; TITLES.len()]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

/// A count in at most five characters or so.
fn short(count: f64) -> String {
    scaled(count, 1000.0, ["", "k", "M", "G", "T", "P"])
}

/// Bytes, by powers of 1,024.
pub(crate) fn bytes(count: f64) -> String {
    scaled(count, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

fn scaled(mut count: f64, base: f64, units: [&str; 6]) -> String {
    let mut unit = 0;
    while count >= base && unit + 1 < units.len() {
        count /= base;
        unit += 1;
    }
    let number = match unit {
        0 => format!("{count:.0}"),
        _ if count < 10.0 => format!("{count:.2}"),
        _ => format!("{count:.1}"),
    };
    match units[unit] {
        "" => number,
        unit if base == 1000.0 => format!("{number}{unit}"),
        unit => format!("{number} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::see::sample::METRICS;

    fn sample(rank: u32, bytes_sent: u64) -> Sample {
        let mut sample = Sample::absent(rank, 0);
        let at = METRICS.iter().position(|it| it.name == "bytes_sent").unwrap();
        sample.words[at] = bytes_sent;
        sample
    }

    #[test]
    fn counts_are_short() {
        assert_eq!(short(0.0), "0");
        assert_eq!(short(999.0), "999");
        assert_eq!(short(12_345.0), "12.3k");
        assert_eq!(bytes(1_536.0), "1.50 KiB");
        assert_eq!(bytes(u64::MAX as f64), "16384.0 PiB");
    }

    #[test]
    fn a_table_has_a_line_a_rank_and_one_of_sums() {
        let lines = lines(&[sample(0, 1024), sample(1, 2048)]);
        assert_eq!(lines.len(), 4);
        assert!(lines[3].trim_start().starts_with("all") && lines[3].contains("3.00 KiB"), "{lines:?}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }

    #[test]
    fn rates_are_since_the_sample_before_and_never_below_zero() {
        let at = TITLES.iter().position(|title| *title == "sent").unwrap();
        let rate = |now, before, seconds| cells(&sample(0, now), Some((&sample(0, before), seconds)))[at].clone();
        assert_eq!(rate(4096, 2048, 2.0), "1.00 KiB");
        assert_eq!(rate(0, 2048, 2.0), "0 B");
        assert_eq!(rate(4096, 2048, 0.0), "0 B");
    }
}
