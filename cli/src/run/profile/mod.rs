//! Which allocations of the shared memory have cost a job most: the profiles of its ranks, joined.
//!
//! A rank knows where it allocates, and at which minipages and pages it faults; whose those are is known only here.

mod advice;
mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use mapwire_driver::profile::{MOST_FILE_BYTES, Means, Report, Unit, file_of};

/// Allocations that are told of.
const MOST: usize = 10;

/// Allocations of one call site, or of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Path or name.
    text: String,
    /// 0 for a name.
    line: u32,
    allocations: u64,
    bytes: u64,
    /// Ranks that have allocated it.
    by: BTreeSet<u32>,
    read_faults: u64,
    write_faults: u64,
    /// Bytes that moved between ranks.
    moved: u64,
    /// Rights that came back to a rank shortly after it had lost them.
    returned: u64,
    /// Faults of ranks that have stored to other parts of a unit than all others that stored to it.
    falsely: u64,
    /// Faults a little behind the one before.
    in_row: u64,
    diffs: u64,
    readers: BTreeMap<u32, u64>,
    writers: BTreeMap<u32, u64>,
    /// Ranks of the false sharing, and the length of the longest of those units.
    false_ranks: BTreeSet<u32>,
    false_bytes: u64,
    is_lazy: bool,
}

impl Row {
    fn faults(&self) -> u64 {
        self.read_faults.saturating_add(self.write_faults)
    }

    fn place(&self) -> String {
        match self.line {
            0 => self.text.clone(),
            line => format!("{}:{line}", self.text),
        }
    }

    fn add(&mut self, rank: u32, unit: &Unit, is_lazy: bool) {
        let sums = [
            (&mut self.read_faults, unit.read_faults),
            (&mut self.write_faults, unit.write_faults),
            (&mut self.moved, unit.bytes),
            (&mut self.returned, unit.returned),
            (&mut self.in_row, unit.in_row),
            (&mut self.diffs, unit.diffs),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        for (ranks, faults) in [(&mut self.readers, unit.read_faults), (&mut self.writers, unit.write_faults)] {
            if faults > 0 {
                let sum = ranks.entry(rank).or_default();
                *sum = sum.saturating_add(faults);
            }
        }
        self.is_lazy |= is_lazy;
    }
}

/// The profile of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// Those with most faults first.
    rows: Vec<Row>,
    /// The processor kept a memory of the job coherent.
    is_of_one_host: bool,
    /// A protocol did.
    is_of_protocol: bool,
    /// Allocations that are not told apart.
    left_out: u64,
}

/// Places by what they have allocated.
#[derive(Debug, Default)]
struct Places {
    rows: Vec<Row>,
    by_text: BTreeMap<(String, u32), usize>,
    /// Rows by first position, with the position behind the last.
    ranges: BTreeMap<u64, (u64, usize)>,
}

/// Ranges that are looked at for a position: one lies in another where a block was freed and its memory used again.
const NESTED: usize = 64;

impl Places {
    fn enter(&mut self, report: &Report) {
        let sites: Vec<usize> = report.sites.iter().map(|site| self.row(&site.text, site.line)).collect();
        for (site, &row) in report.sites.iter().zip(&sites) {
            let row = &mut self.rows[row];
            row.allocations = row.allocations.saturating_add(site.allocations);
            row.bytes = row.bytes.saturating_add(site.bytes);
            row.by.insert(report.rank);
        }
        for range in &report.ranges {
            self.ranges.insert(range.first, (range.end, sites[range.site]));
        }
    }

    fn row(&mut self, text: &str, line: u32) -> usize {
        let rows = &mut self.rows;
        *self.by_text.entry((text.to_owned(), line)).or_insert_with(|| {
            rows.push(Row { text: text.to_owned(), line, ..Row::default() });
            rows.len() - 1
        })
    }

    fn row_at(&mut self, position: u64) -> usize {
        let before = self.ranges.range(..=position).rev().take(NESTED);
        let found = before.map(|(_, range)| *range).find(|(end, _)| position < *end);
        found.map_or_else(|| self.row("not known where", 0), |(_, row)| row)
    }
}

/// Reads the profile that a rank left, which may be a pipe, or longer than any profile.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(MOST_FILE_BYTES).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl Profile {
    /// Joins what the ranks have left in `folder`; `None` if none has opened a shared memory.
    pub(super) fn read(folder: &Path, ranks: impl Iterator<Item = u32>) -> Option<Self> {
        let files = ranks.filter_map(|rank| contents(&file_of(folder, rank)).ok());
        let reports: Vec<Report> = files.filter_map(|bytes| Report::read(&bytes)).collect();
        (!reports.is_empty()).then(|| Self::join(&reports))
    }

    fn join(reports: &[Report]) -> Self {
        let mut places = Places::default();
        reports.iter().for_each(|report| places.enter(report));
        let mut units: BTreeMap<u64, Vec<(u32, &Unit, usize)>> = BTreeMap::new();
        for report in reports {
            for unit in &report.units {
                let row = places.row_at(unit.first);
                places.rows[row].add(report.rank, unit, unit.view() == 0 && report.was(Means::Lazy));
                units.entry(unit.key).or_default().push((report.rank, unit, row));
            }
        }
        for shared in units.values() {
            note_false_sharing(&mut places.rows, shared);
        }
        let mut rows = places.rows;
        rows.sort_by_key(|row| std::cmp::Reverse((row.faults(), row.moved)));
        Self {
            rows,
            is_of_one_host: reports.iter().any(|report| report.was(Means::Processor)),
            is_of_protocol: reports.iter().any(|report| report.was(Means::Minipages) || report.was(Means::Lazy)),
            left_out: reports.iter().fold(0, |sum: u64, report| sum.saturating_add(report.left_out)),
        }
    }
}

/// Several ranks have stored to a unit more than once, and each to other parts than the others.
fn note_false_sharing(rows: &mut [Row], shared: &[(u32, &Unit, usize)]) {
    let stores = |unit: &Unit| unit.write_faults > 1 && !unit.is_area();
    let meet = |one: &Unit, other: &Unit| one.parts.iter().zip(other.parts).any(|(one, other)| one & other != 0);
    let writers: Vec<_> = shared.iter().filter(|(_, unit, _)| stores(unit)).collect();
    for (rank, unit, row) in &writers {
        let mut others = writers.iter().filter(|(other, ..)| other != rank).peekable();
        if others.peek().is_some() && others.all(|(_, other, _)| !meet(unit, other)) {
            let row = &mut rows[*row];
            row.falsely = row.falsely.saturating_add(unit.faults());
            row.false_ranks.insert(*rank);
            row.false_bytes = row.false_bytes.max(unit.length);
        }
    }
}

#[cfg(test)]
mod tests;
