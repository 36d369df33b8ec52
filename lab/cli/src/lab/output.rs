//! What the laboratory prints.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mapwire_console::whole_file::WholeFile;

use super::{LabError, UsageError};
use mapwire_console::stdio;

/// Where a command writes what it finds: stdout, or a file that appears under its name when it is whole. A file is begun before
/// traces are read, which may take hours: one that cannot be is told at once.
pub(crate) struct Output(Option<(PathBuf, WholeFile)>);

impl Output {
    /// Begins the file, if one is named, which must be none of the files that are read.
    pub(crate) fn begin(path: Option<&Path>, inputs: &[PathBuf]) -> Result<Self, LabError> {
        if let Some(path) = path {
            refuse_input(path, inputs)?;
        }
        let begun = path.map(|path| match WholeFile::create(path) {
            Ok(file) => Ok((path.to_owned(), file)),
            Err(error) => Err(cannot_write(path)(&error)),
        });
        Ok(Self(begun.transpose()?))
    }

    /// Writes all that there is to write.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), LabError> {
        let Some((path, mut file)) = self.0 else { return print(&String::from_utf8_lossy(bytes)) };
        let named = cannot_write(&path);
        file.write_all(bytes).map_err(|error| named(&error))?;
        file.keep().map_err(|error| named(&error))?;
        Ok(())
    }
}

/// Names the file in an error of writing it.
pub(super) fn cannot_write(path: &Path) -> impl Fn(&dyn std::fmt::Display) -> LabError {
    move |error| {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let mend = match folder {
            Some(folder) if !folder.is_dir() => "; make its folder first",
            _ => "",
        };
        format!("cannot write {}: {error}{mend}", path.display()).into()
    }
}

/// Refuses to write over a file that is read.
pub(super) fn refuse_input<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), LabError> {
    let is = |path: &Path| {
        let file = std::fs::metadata(path).ok().filter(|it| it.is_file());
        file.map(|file| (file.dev(), file.ino()))
    };
    let written = is(output);
    let same = |input: &&PathBuf| written.is_some() && is(input) == written;
    match inputs.into_iter().find(same) {
        None => Ok(()),
        Some(input) => Err(UsageError(format!(
            "-o {} is the file {} that is read; name another, so that it is not lost",
            output.display(),
            input.display()
        ))
        .into()),
    }
}

/// Prints text to standard output; [`stdio::finish`] reports what could not be written.
pub(crate) fn print(text: &str) -> Result<(), LabError> {
    stdio::print(format_args!("{text}"));
    Ok(())
}

/// Rows of text under their headings: the first column to the left, all others to the right. What is wider than the terminal
/// comes as several tables, each of which begins with the first column.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    fitted(headings, rows, 1, known_columns())
}

/// Columns of the terminal; a file has as many as most terminals.
pub(crate) fn known_columns() -> usize {
    stdio::columns()
}

/// A table of at most so many `columns`, if need be in parts, each of which begins with the first `keys` columns. Those are to the
/// left, all others to the right. A heading that has no room even alone is broken behind commas.
pub(crate) fn fitted(headings: &[&str], rows: &[Vec<String>], keys: usize, columns: usize) -> String {
    let of_cells = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let of_key = |key: usize| of_cells(key).max(headings[key].chars().count());
    let room = columns.saturating_sub((0..keys).map(|key| of_key(key) + 2).sum());
    let headings: Vec<Vec<String>> = headings.iter().map(|it| broken(it, room)).collect();
    let width = |column: usize| {
        headings[column].iter().map(|line| line.chars().count()).max().unwrap_or(0).max(of_cells(column))
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    let mut begin = keys;
    loop {
        let mut used = widths[..keys].iter().map(|width| width + 2).sum::<usize>();
        let mut end = begin;
        while end < widths.len() && (end == begin || used + widths[end] <= columns) {
            used += widths[end] + 2;
            end += 1;
        }
        let shown = || (0..keys).chain(begin..end);
        let mut line = |cell: &dyn Fn(usize) -> String| {
            let mut cells = String::new();
            for column in shown() {
                let (gap, width) = (if column == 0 { "" } else { "  " }, widths[column]);
                cells.push_str(&if column < keys {
                    format!("{gap}{:<width$}", cell(column))
                } else {
                    format!("{gap}{:>width$}", cell(column))
                });
            }
            text.push_str(cells.trim_end());
            text.push('\n');
        };
        let lines = shown().map(|column| headings[column].len()).max();
        for left in (1..=lines.unwrap_or(1)).rev() {
            line(&|column| {
                let heading = &headings[column];
                let at = heading.len().checked_sub(left);
                at.map_or_else(String::new, |at| heading[at].clone())
            });
        }
        for row in rows {
            line(&|column| row[column].clone());
        }
        if end >= widths.len() {
            return text;
        }
        text.push('\n');
        begin = end;
    }
}

/// A heading in lines of at most `room` characters, as far as it has commas.
fn broken(heading: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in heading.split_inclusive(',') {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        if used > 0 && used + part.chars().count() > room {
            lines.push(part.to_owned())
        } else {
            lines[last].push_str(part)
        }
    }
    lines
}

/// Text in HTML or SVG.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with a comma before every three digits from the right.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds since 1970 as a day and minute, UTC.
pub(super) fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Years that begin in March, in cycles of 400 (146,097 days), counted from March of the year 0.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * cycle + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// A span of time with a unit that suits it.
pub(super) fn span(ns: u64) -> String {
    let of = |unit: f64| ns as f64 / unit;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.3} µs", of(1e3)),
        1_000_000..1_000_000_000 => format!("{:.3} ms", of(1e6)),
        _ => format!("{:.3} s", of(1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (43_132, "43,132"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn spans_have_a_unit_that_suits_them() {
        for (ns, text) in [(999, "999 ns"), (1500, "1.500 µs"), (2_500_000, "2.500 ms"), (60_000_000_000, "60.000 s")]
        {
            assert_eq!(span(ns), text);
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_357_800, "2026-11-22 14:30 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(unix_s), text);
        }
    }

    #[test]
    fn cells_stand_under_their_headings() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "7".to_owned()]];
        let text = "x      n\na     10\nlong   7\n";
        assert_eq!(fitted(&["x", "n"], &rows, 1, 100), text);
    }

    #[test]
    fn a_table_that_is_too_wide_comes_in_parts_that_name_their_rows() {
        let row = ["row", "11", "22", "33"].map(str::to_owned).to_vec();
        let text = fitted(&["", "a", "b", "c"], &[row], 1, 12);
        assert_eq!(text, "      a   b\nrow  11  22\n\n      c\nrow  33\n");
    }

    #[test]
    fn a_heading_without_room_is_broken_behind_a_comma() {
        let row = ["row", "11"].map(str::to_owned).to_vec();
        let text = fitted(&["", "one,two,three"], &[row], 1, 13);
        assert_eq!(text, "     one,two,\n        three\nrow        11\n");
    }
}
