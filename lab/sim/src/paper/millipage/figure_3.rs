//! Figure 3: response times of nodes that are idle and of nodes that compute, and what their polling takes.

use super::bench;
use super::us;
use crate::hosts::{HostsError, Notice, millipage};
use crate::paper::{Cell, Figure, Line, Published, Role, Table};

const BYTES: [u64; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// The two halves of the figure, their points as a table, and the processor time of the threads that handle messages.
pub(super) fn all() -> Result<(Figure, Figure, Table, Table), HostsError> {
    let caption = "mean time to read a remote minipage, while the replying node is idle (left) or computes (right)";
    let columns = ["polling, idle", "interrupts, idle", "polling, busy", "interrupts, busy"];
    let mut table = Table::new("Figure 3", caption, "us", &["bytes"], &columns);
    let mut lines: [Vec<(i64, i64)>; 4] = Default::default();
    for bytes in BYTES {
        let mut cells = Vec::new();
        for (at, line) in lines.iter_mut().enumerate() {
            let notice = [Notice::Polling, Notice::Interrupts][at % 2];
            let milli = us(bench::read(&millipage(notice), bytes, at >= 2)?);
            line.push((bytes as i64, milli));
            cells.push(Cell::new(milli));
        }
        table.row(&[&bytes.to_string()], cells);
    }
    table.note("The paper's points cannot be read from its text. It states that idle nodes answer as fast by polling as by interrupts, that polling degrades significantly when they compute, and that interrupts suffer slightly.");
    table.note("A reader that asks again as soon as it is answered keeps in step with the timer: each read takes a whole beat of 1 ms.");
    let figure = |name, half: &str, from: usize, lines: &[Vec<(i64, i64)>; 4]| {
        let line = |at: usize| Line { name: columns[at].to_owned(), points: lines[at].clone() };
        let caption = format!("time to read a remote minipage, replying node {half}");
        Figure::lines(name, &caption, ("bytes", "us"), [line(from), line(from + 1)])
    };
    let left = figure("Figure 3, left", "idle", 0, &lines);
    let right = figure("Figure 3, right", "computing", 2, &lines);
    Ok((left, right, table, processor()?))
}

/// What the threads that handle messages take of the processor.
fn processor() -> Result<Table, HostsError> {
    let caption =
        "processor time of the replying node's threads that handle messages, for each read, its application computing";
    let columns = ["polling", "interrupts", "polling / interrupts, ratio"];
    let mut table = Table::new("Processor time", caption, "us", &["reads"], &columns);
    for (name, think_us, published) in [("back to back", 0, Some(1_400)), ("up to 10 ms apart", 10_000, None)] {
        let mut taken = [0; 2];
        for (taken, notice) in taken.iter_mut().zip([Notice::Polling, Notice::Interrupts]) {
            *taken = us(bench::serving(&millipage(notice), think_us * 1_000_000)?);
        }
        let ratio = taken[0] * 1000 / taken[1].max(1);
        let ratio = match published {
            Some(milli) => Cell::beside(ratio, Published { milli, digit_milli: 100 }, Role::Predicted),
            None => Cell::new(ratio),
        };
        table.row(&[name], vec![Cell::new(taken[0]), Cell::new(taken[1]), ratio]);
    }
    table.note("§3.4: by polling the thread that handles messages uses about 40 % more. How many empty looks of the timer there are for a read depends on how often it is asked: a look takes 10 us, which is assumed.");
    Ok(table)
}
