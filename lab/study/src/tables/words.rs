//! What the tables and figures show, in words.

use super::Comparison;
use crate::published::Paper;

/// The size at which designs are compared in words.
const SIZE: &str = "8K";

impl Comparison {
    /// What it shows, without the paper's number.
    pub fn heading(&self) -> &'static str {
        match (self.paper, self.name) {
            (Paper::Utlb, "Table 3") => "How much memory is communicated, and how often",
            (Paper::Utlb, "Table 4") => "Misses and unpins of UTLB and of interrupts, with all memory pinned",
            (Paper::Utlb, "Table 5") => "Misses and unpins of UTLB and of interrupts, with 4 MB pinned by each process",
            (Paper::Utlb, "Table 6") => "What a lookup costs with UTLB and with interrupts",
            (Paper::Utlb, "Table 7") => "What pinning costs: one page at a time, or 16 at once",
            (Paper::Utlb, "Table 8") => "NIC misses by cache size and associativity",
            (Paper::Utlb, "Figure 7") => "Why the NIC misses: compulsory, capacity, conflict",
            (Paper::Utlb, "Figure 8") => "What it saves to fetch several entries on a miss",
            (_, "Figure 3") => "What the NIC's memory holds: tables, or caches of handles",
            _ => "Misses of dynamic handles by cache size, line and associativity",
        }
    }

    fn number(&self, keys: &[&str], column: &str) -> Option<f64> {
        self.ours_at(keys, column)?.value
    }
}

/// What follows from the tables for each trace: what a lookup costs, why the NIC misses, what a larger cache is good for.
pub fn conclusions(names: &[String], tables: &[Comparison]) -> Vec<String> {
    let named = |name: &str| tables.iter().find(|table| table.name == name);
    let of_trace = |name: &String| {
        let costs = named("Table 6").and_then(|table| cost_words(table, name));
        let causes = named("Figure 7").and_then(|table| cause_words(table, name));
        let sizes = named("Table 8").and_then(|table| size_words(table, name));
        let words: Vec<_> = [costs, causes, sizes].into_iter().flatten().collect();
        (!words.is_empty()).then(|| format!("{name}: {}.", words.join(". ")))
    };
    names.iter().filter_map(of_trace).collect()
}

fn cost_words(table: &Comparison, name: &str) -> Option<String> {
    let utlb = table.number(&[SIZE], &format!("{name} UTLB"))?;
    let interrupt = table.number(&[SIZE], &format!("{name} Intr"))?;
    let verdict = match utlb.total_cmp(&interrupt) {
        std::cmp::Ordering::Less => {
            let saved = 100.0 * (1.0 - utlb / interrupt);
            format!("UTLB costs {saved:.0} % less")
        }
        std::cmp::Ordering::Greater => {
            let saved = 100.0 * (1.0 - interrupt / utlb);
            format!("interrupts cost {saved:.0} % less")
        }
        std::cmp::Ordering::Equal => "both cost the same".to_owned(),
    };
    Some(format!(
        "with {SIZE} entries a lookup costs {utlb:.2} µs with UTLB and {interrupt:.2} µs with interrupts; {verdict}"
    ))
}

fn cause_words(table: &Comparison, name: &str) -> Option<String> {
    let causes = ["compulsory", "capacity", "conflict"];
    let mut parts = Vec::new();
    for cause in causes {
        parts.push((cause, table.number(&[SIZE, cause], name)?));
    }
    let all: f64 = parts.iter().map(|part| part.1).sum();
    let (most, share) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if all == 0.0 {
        return Some("Its cache never misses".to_owned());
    }
    Some(format!(
        "The NIC misses {:.0} % of the lookups, {:.0} % of these misses are {most}",
        100.0 * all,
        100.0 * share / all
    ))
}

fn size_words(table: &Comparison, name: &str) -> Option<String> {
    let small = table.number(&["1K", "direct"], name)?;
    let large = table.number(&["16K", "direct"], name)?;
    Some(format!("From 1K to 16K entries the misses go from {small:.2} to {large:.2} a lookup"))
}
