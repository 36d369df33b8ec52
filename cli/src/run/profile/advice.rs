//! Advice for an allocation: the first rule that applies.

use std::collections::{BTreeMap, BTreeSet};

use super::Row;

/// Whether `part` is at least a quarter of `all`.
fn is_much(part: u64, all: u64) -> bool {
    part > 0 && part.saturating_mul(4) >= all
}

impl Row {
    /// One short sentence; `None` where nothing stands out.
    pub(super) fn advice(&self) -> Option<String> {
        let faults = self.faults();
        let writers: BTreeSet<u32> = self.writers.keys().copied().collect();
        if is_much(self.falsely, faults) {
            let who = named(&self.false_ranks);
            return Some(match self.is_lazy {
                false => format!(
                    "{who} store to different parts of a unit of {} bytes in turns: give each rank units of its own, as alloc_rows does",
                    self.false_bytes
                ),
                true => {
                    format!("{who} store to different parts of a page: begin each rank's part on a page of its own")
                }
            });
        }
        if writers.len() > 1 && is_much(self.returned, faults) {
            return Some(format!(
                "{} store to the same bytes in turns: do more in each turn, or sum up in private memory and combine at the barrier",
                named(&writers)
            ));
        }
        let others: BTreeSet<u32> = self.readers.keys().copied().filter(|rank| !writers.contains(rank)).collect();
        if let (Some(writer), 1, false) = (writers.first(), writers.len(), others.is_empty()) {
            let mend = if self.is_lazy { "push after the store" } else { "--coherence hlrc, or push after the store" };
            return Some(format!("rank {writer} stores, {} load: {mend}", named(&others)));
        }
        if self.in_row.saturating_mul(2) >= faults.max(1) {
            let most = most(&self.readers).into_iter().chain(most(&self.writers)).max_by_key(|(_, faults)| *faults)?;
            return Some(format!("rank {} faults unit by unit: prefetch before the loop", most.0));
        }
        (!others.is_empty())
            .then(|| format!("{} load what was stored before: push after the store, or prefetch", named(&others)))
    }
}

fn most(ranks: &BTreeMap<u32, u64>) -> Option<(u32, u64)> {
    ranks.iter().map(|(rank, faults)| (*rank, *faults)).max_by_key(|(_, faults)| *faults)
}

/// "rank 1", "ranks 0 and 1", "ranks 0, 1 and 2", "7 ranks".
pub(super) fn named(ranks: &BTreeSet<u32>) -> String {
    let all: Vec<String> = ranks.iter().map(u32::to_string).collect();
    match &all[..] {
        [one] => format!("rank {one}"),
        [before @ .., last] if all.len() <= 4 => format!("ranks {} and {last}", before.join(", ")),
        _ => format!("{} ranks", all.len()),
    }
}
