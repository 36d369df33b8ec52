//! Output of a program: text, or figures, one JSON object a line.
//!
//! A row has `bench`, the problem's own fields, `value`, `unit`, `baseline`, `baseline_value`, `ratio` (value ÷ baseline_value), `min`,
//! `max` and `runs`, like every figure of mapwire.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::crew::Traffic;
use crate::error::Failure;
use crate::program::Program;

/// Fraction of plain threads' speed-up that mapwire should reach.
const TARGET_RATIO: f64 = 0.95;
/// If two runs of the same threads differ by more than this, the machine changed between them.
const STEADY: f64 = 0.20;

/// Prints to standard output. A missing reader is not a failure; a full disk is.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Machine { doing: "print the result", cause: error.to_string() })
        }
        _ => Ok(()),
    }
}

pub(crate) struct Report {
    pub(crate) mode: &'static str,
    pub(crate) ranks: usize,
    pub(crate) threads: usize,
    /// How long the problem took to come into shared memory.
    pub(crate) prepare_seconds: f64,
    pub(crate) seconds: f64,
    /// `None` if there was no sequential run.
    pub(crate) sequential_seconds: Option<f64>,
    /// Indexed by rank.
    pub(crate) traffic: Vec<Traffic>,
    /// Whether the result is right, if checked.
    pub(crate) check: Option<bool>,
}

impl Report {
    pub(crate) fn print<P: Program>(&self, program: &P, outcome: &P::Outcome, json: bool) -> Result<(), Failure> {
        print(&match json {
            true => format!("{}\n", self.row(program, outcome)),
            false => self.text(program, outcome),
        })
    }

    fn row<P: Program>(&self, program: &P, outcome: &P::Outcome) -> Value {
        let check = match self.check {
            Some(true) => "ok",
            Some(false) => "failed",
            None => "skipped",
        };
        let speed_up = self.sequential_seconds.map(|s| s / self.seconds);
        row([
            heading(program, self.mode, self.ranks, self.threads),
            program.fields(),
            program.outcome_fields(outcome),
            figures(self.seconds, "s", "sequential", self.sequential_seconds, &[self.seconds]),
            traffic_fields(self.mode, &self.traffic),
            json!({"prepare_seconds": self.prepare_seconds, "speed_up": speed_up, "check": check}),
        ])
    }

    fn text<P: Program>(&self, program: &P, outcome: &P::Outcome) -> String {
        let mut text = format!("{}: {}\n", program.name(), program.problem());
        text += &format!("{:<32} {:9.3} s\n", self.who(), self.seconds);
        if let Some(sequential) = self.sequential_seconds.filter(|_| self.mode != "sequential") {
            let speed_up = sequential / self.seconds;
            text += &format!("{:<32} {sequential:9.3} s   speed-up {speed_up:.2}\n", "sequential");
        }
        text += &traffic_text(self.mode, &self.traffic);
        for line in program.describe(outcome) {
            text += &format!("{line}\n");
        }
        text += match self.check {
            Some(true) if self.mode == "sequential" => "check: ok\n",
            Some(true) => "check: ok, as the sequential run\n",
            // The failure itself is reported as the program's end.
            Some(false) => "",
            None => "check: skipped\n",
        };
        text
    }

    fn who(&self) -> String {
        match self.mode {
            "mapwire" => format!("mapwire, {} of {}", counted(self.ranks, "rank"), counted(self.threads, "thread")),
            "threads" => format!("plain threads, {}", self.threads),
            mode => mode.to_string(),
        }
    }
}

/// One run over mapwire between two of plain threads, in seconds.
pub(crate) struct Round {
    pub(crate) seconds: f64,
    pub(crate) threads_before: f64,
    pub(crate) threads_after: f64,
}

impl Round {
    fn threads(&self) -> f64 {
        (self.threads_before + self.threads_after) / 2.0
    }

    fn is_steady(&self) -> bool {
        let (a, b) = (self.threads_before, self.threads_after);
        (a - b).abs() <= STEADY * a.min(b)
    }
}

/// mapwire and plain threads, run in turn.
pub(crate) struct Comparison {
    pub(crate) ranks: usize,
    pub(crate) threads: usize,
    /// Whether the plain threads' barrier uses futexes and never spins.
    pub(crate) futexes: bool,
    pub(crate) sequential_seconds: Option<f64>,
    pub(crate) rounds: Vec<Round>,
    /// Traffic of the last round, by rank.
    pub(crate) traffic: Vec<Traffic>,
}

impl Comparison {
    pub(crate) fn print<P: Program>(&self, program: &P, json: bool) -> Result<(), Failure> {
        print(&match json {
            true => format!("{}\n", self.row(program)),
            false => self.text(program),
        })
    }

    fn baseline(&self) -> &'static str {
        match self.futexes {
            true => "threads with a futex barrier",
            false => "threads",
        }
    }

    /// The rounds in which the machine did not change between the two runs of threads; all rounds, if there are none.
    fn kept(&self) -> Vec<&Round> {
        let steady: Vec<_> = self.rounds.iter().filter(|r| r.is_steady()).collect();
        match steady.is_empty() {
            true => self.rounds.iter().collect(),
            false => steady,
        }
    }

    /// Median seconds over mapwire, and of plain threads, in the rounds kept.
    fn medians(&self) -> (f64, f64) {
        let kept = self.kept();
        let of = |seconds: fn(&Round) -> f64| median(kept.iter().map(|r| seconds(r)).collect());
        (of(|r| r.seconds), of(Round::threads))
    }

    fn row<P: Program>(&self, program: &P) -> Value {
        let (mapwire, threads) = self.medians();
        let kept = self.kept();
        let ratios: Vec<f64> = kept.iter().map(|r| r.threads() / r.seconds).collect();
        // Without a sequential run there is no speed-up; rates of runs compare alike.
        let (work, unit) = match self.sequential_seconds {
            Some(sequential) => (sequential, "speed-up"),
            None => (1.0, "1/s"),
        };
        let all: Vec<_> = kept.iter().map(|r| work / r.seconds).collect();
        row([
            heading(program, "mapwire", self.ranks, self.threads),
            program.fields(),
            figures(work / mapwire, unit, self.baseline(), Some(work / threads), &all),
            traffic_fields("mapwire", &self.traffic),
            json!({
                "ratios": ratios,
                "rounds_dropped": self.rounds.len() - kept.len(),
                "seconds": mapwire,
                "threads_seconds": threads,
                "sequential_seconds": self.sequential_seconds,
                "target_ratio": TARGET_RATIO,
                "check": if self.sequential_seconds.is_some() { "ok" } else { "skipped" },
            }),
        ])
    }

    fn text<P: Program>(&self, program: &P) -> String {
        let (mapwire, threads) = self.medians();
        let speed_up = |seconds: f64| match self.sequential_seconds {
            Some(sequential) => format!("   speed-up {:.2}", sequential / seconds),
            None => String::new(),
        };
        let mut text = format!("{}: {}\n", program.name(), program.problem());
        if let Some(sequential) = self.sequential_seconds {
            text += &format!("{:<32} {sequential:9.3} s\n", "sequential");
        }
        let plain = format!("{}, {}", self.baseline(), self.ranks * self.threads);
        text += &format!("{plain:<32} {threads:9.3} s{}\n", speed_up(threads));
        let ours = format!("mapwire, {} of {}", counted(self.ranks, "rank"), counted(self.threads, "thread"));
        text += &format!("{ours:<32} {mapwire:9.3} s{}\n", speed_up(mapwire));
        text += &traffic_text("mapwire", &self.traffic);
        let (kept, all) = (self.kept().len(), self.rounds.len());
        let ratio = threads / mapwire;
        let verdict = if ratio >= TARGET_RATIO { "reached" } else { "missed" };
        text += &format!(
            "ratio of speed-ups: {ratio:.3} (the target, {TARGET_RATIO}, is {verdict}); medians of {}",
            counted(kept, "round")
        );
        if kept < all {
            text += &format!(", {} dropped for threads that differed by more than {:.0} %", all - kept, STEADY * 100.0);
        }
        text += match self.sequential_seconds {
            Some(_) => "\ncheck: ok, every round as the sequential run\n",
            None => "\ncheck: skipped\n",
        };
        text
    }
}

/// The fields of all these objects as one.
fn row<const N: usize>(parts: [Value; N]) -> Value {
    let objects =
        parts.into_iter().filter_map(|part| if let Value::Object(fields) = part { Some(fields) } else { None });
    Value::Object(objects.flatten().collect())
}

fn heading<P: Program>(program: &P, mode: &str, ranks: usize, threads: usize) -> Value {
    let mut heading =
        json!({"kind": "figure", "bench": program.name(), "mode": mode, "ranks": ranks, "threads": threads});
    if mode == "mapwire" {
        heading["wait"] = json!(waiting());
    }
    heading
}

/// The waiting strategy that the ranks use.
fn waiting() -> String {
    std::env::var("MAPWIRE_WAIT").unwrap_or_else(|_| "adaptive".to_string())
}

fn figures(value: f64, unit: &str, baseline: &str, baseline_value: Option<f64>, all: &[f64]) -> Value {
    json!({
        "value": value,
        "unit": unit,
        "baseline": baseline,
        "baseline_value": baseline_value,
        "ratio": baseline_value.map(|baseline| value / baseline),
        "min": all.iter().copied().fold(f64::INFINITY, f64::min),
        "max": all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "runs": all.len(),
    })
}

fn traffic_fields(mode: &str, traffic: &[Traffic]) -> Value {
    let total = sum(traffic);
    match mode {
        "mapwire" => json!({
            "read_faults": total.read_faults,
            "write_faults": total.write_faults,
            "messages": total.messages,
            "bytes": total.bytes,
            "must_move_bytes": total.must_move_bytes,
            "by_rank": traffic,
        }),
        _ => json!({}),
    }
}

fn traffic_text(mode: &str, traffic: &[Traffic]) -> String {
    if mode != "mapwire" {
        return String::new();
    }
    let line = |who: &str, t: &Traffic| {
        format!(
            "{who:<12} {:>8} read faults, {:>8} write faults, {:>9} messages, {:>13} bytes\n",
            t.read_faults, t.write_faults, t.messages, t.bytes
        )
    };
    let mut text = line("all ranks", &sum(traffic));
    text += &format!("{:<12} {:>8} bytes that other workers wrote were read\n", "", sum(traffic).must_move_bytes);
    if traffic.len() > 1 {
        for (rank, traffic) in traffic.iter().enumerate() {
            text += &line(&format!("  rank {rank}"), traffic);
        }
    }
    text
}

fn sum(traffic: &[Traffic]) -> Traffic {
    traffic.iter().fold(Traffic::default(), |all, &t| all.plus(t))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The median of at least one value; of an even number, the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::Crew;
    use crate::lu::Lu;
    use crate::run::solve;

    const LU: Lu = Lu { size: 8, block: 4 };

    fn traffic(read_faults: u64) -> Traffic {
        Traffic { read_faults, write_faults: 2, prefetches: 0, messages: 30, bytes: 4000, must_move_bytes: 100 }
    }

    fn round(seconds: f64, threads_before: f64, threads_after: f64) -> Round {
        Round { seconds, threads_before, threads_after }
    }

    fn comparison(rounds: Vec<Round>) -> Comparison {
        Comparison {
            ranks: 2,
            threads: 1,
            futexes: false,
            sequential_seconds: Some(4.0),
            rounds,
            traffic: vec![traffic(1), traffic(5)],
        }
    }

    #[test]
    fn a_row_has_the_fields_that_every_figure_has() {
        let outcome = solve(&LU, &Crew::plain(1)).unwrap();
        let report = Report {
            mode: "mapwire",
            ranks: 2,
            threads: 1,
            prepare_seconds: 0.5,
            seconds: 2.0,
            sequential_seconds: Some(3.0),
            traffic: vec![traffic(1), traffic(5)],
            check: Some(true),
        };
        let row = report.row(&LU, &outcome);
        for (field, expected) in [
            ("bench", json!("lu")),
            ("size", json!(8)),
            ("ranks", json!(2)),
            ("value", json!(2.0)),
            ("unit", json!("s")),
            ("baseline", json!("sequential")),
            ("baseline_value", json!(3.0)),
            ("ratio", json!(2.0 / 3.0)),
            ("min", json!(2.0)),
            ("max", json!(2.0)),
            ("runs", json!(1)),
            ("speed_up", json!(1.5)),
            ("read_faults", json!(6)),
            ("messages", json!(60)),
            ("check", json!("ok")),
        ] {
            assert_eq!(row[field], expected, "{field}");
        }
        assert_eq!(row["by_rank"][1]["read_faults"], json!(5));
        let text = report.text(&LU, &outcome);
        assert!(text.contains("speed-up 1.50") && text.contains("check: ok"), "{text}");
    }

    #[test]
    fn a_comparison_gives_the_ratio_of_speed_ups() {
        let comparison = comparison(vec![round(2.5, 2.0, 2.0), round(2.0, 2.0, 1.9), round(2.0, 1.9, 2.1)]);
        let row = comparison.row(&LU);
        assert_eq!(row["value"], json!(2.0));
        assert_eq!(row["baseline_value"], json!(2.0));
        assert_eq!(row["ratio"], json!(1.0));
        assert_eq!(row["min"], json!(1.6));
        assert_eq!(row["runs"], json!(3));
        assert_eq!(row["rounds_dropped"], json!(0));
        assert!(comparison.text(&LU).contains("ratio of speed-ups: 1.000"));
    }

    #[test]
    fn rounds_in_which_the_machine_changed_are_dropped() {
        let comparison = comparison(vec![round(2.0, 2.0, 2.0), round(9.0, 2.0, 3.0)]);
        let row = comparison.row(&LU);
        assert_eq!(row["seconds"], json!(2.0));
        assert_eq!(row["rounds_dropped"], json!(1));
        assert!(comparison.text(&LU).contains("1 dropped"));
    }

    #[test]
    fn if_the_machine_never_stayed_the_same_all_rounds_count() {
        let comparison = comparison(vec![round(2.0, 2.0, 3.0), round(4.0, 3.0, 2.0)]);
        let row = comparison.row(&LU);
        assert_eq!(row["seconds"], json!(3.0));
        assert_eq!(row["runs"], json!(2));
    }

    #[test]
    fn medians_are_of_odd_and_of_even_numbers() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
