//! What operations cost, beside what the same authors state of the same system in another paper.

use super::bench::{self, NODES};
use super::us;
use crate::hosts::{HostsError, Notice, millipage};
use crate::paper::numbers::whole;
use crate::paper::{Cell, Role, Table};

use Role::{Input, Predicted, Repeated};

pub(super) fn table() -> Result<Table, HostsError> {
    let caption = "what operations take by polling while no application computes; published: Itzkovitz and Schuster, OSDI 1999, §4.2";
    let mut table = Table::new("Basic costs", caption, "us", &["operation"], &["time"]);
    let machine = millipage(Notice::Polling);
    let mut row = |name: &str, ps, published, role| {
        let cell = Cell::beside(us(ps), whole(published), role);
        table.row(&[name], vec![cell]);
    };
    row("read of 128 bytes", bench::read(&machine, 128, false)?, 204, Input);
    row("read of 4 KB", bench::read(&machine, 4096, false)?, 314, Input);
    row("write of 128 bytes, no copies", bench::write(&machine, 128, 0)?, 212, Predicted);
    row("write of 128 bytes, 6 copies", bench::write(&machine, 128, 6)?, 366, Predicted);
    row("write of 4 KB, no copies", bench::write(&machine, 4096, 0)?, 327, Predicted);
    row("write of 4 KB, 6 copies", bench::write(&machine, 4096, 6)?, 480, Predicted);
    row("lock and unlock, had by nobody", bench::lock(&machine, NODES, false)?, 67, Input);
    row("lock and unlock, had by another", bench::lock(&machine, NODES, true)?, 80, Predicted);
    row("barrier of 1 node", bench::barrier(&machine, 1)?, 59, Input);
    row("barrier of 8 nodes", bench::barrier(&machine, NODES)?, 153, Input);
    row("read from a node that computes", bench::read_at_random(&machine)?, 750, Predicted);
    row("round trip of 200 bytes (§3.1)", bench::round_trip(&machine, 200), 25, Predicted);
    row("round trip of 4 KB (§3.1)", bench::round_trip(&machine, 4096), 180, Repeated);
    table.note("Round trips: §3.1 of the paper itself, messages of FM alone. That of 4 KB is twice the 90 us one way that went in. That of 200 bytes lies on the line through OSDI's 32 bytes and 4 KB; the paper's 25 us are hardly more than twice the 12 us of 32 bytes, so that a byte costs less up to 200 bytes than beyond. The machine has one price.");
    table.note("Write of 128 bytes with copies: each holder of a copy sends its word to the writer, which handles them one by one. If such a word took as little as one of a barrier, this write would take 258 us.");
    Ok(table)
}
