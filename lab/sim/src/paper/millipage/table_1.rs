//! Table 1: five applications on 8 nodes.

use super::applications::{APPLICATIONS, Application};
use super::seconds;
use crate::hardware::Ps;
use crate::hosts::{self, Notice, millipage};
use crate::paper::{Cell, PaperError, Published, Role, Table};

/// A published time in thousandths of a second, printed to hundredths.
const fn hundredths(milli: i64) -> Published {
    Published {
        milli,
        digit_milli: 10,
    }
}

/// What an application takes between its first barrier and its last.
pub(super) fn time(application: &Application, notice: Notice) -> Result<Ps, PaperError> {
    let outcome = hosts::run(&millipage(notice), &application.program()?, &[])?;
    Ok(outcome.work_ps.unwrap_or(outcome.total_ps))
}

/// By how many thousandths of a percent the second time is less than the first.
pub(super) fn improvement(polling: i64, interrupts: i64) -> i64 {
    (polling - interrupts) * 100_000 / polling.max(1)
}

/// The table.
pub(super) fn table() -> Result<Table, PaperError> {
    let caption = "times of applications on one node and on 8";
    let columns = ["seq.", "polling", "interrupts", "improvement %", "theirs %"];
    let mut table = Table::new(
        "Table 1",
        caption,
        "s; %",
        &["application", "data"],
        &columns,
    );
    for application in &APPLICATIONS {
        let [sequential, polling, interrupts] = application.published;
        let ours = [
            seconds(time(application, Notice::Polling)?),
            seconds(time(application, Notice::Interrupts)?),
        ];
        let cells = vec![
            Cell::beside(sequential, hundredths(sequential), Role::Input),
            Cell::beside(ours[0], hundredths(polling), Role::Predicted),
            Cell::beside(ours[1], hundredths(interrupts), Role::Predicted),
            Cell::new(improvement(ours[0], ours[1])),
            Cell::new(improvement(polling, interrupts)),
        ];
        table.row(&[application.name, application.data], cells);
    }
    table.note("SOR, LU, IS and TSP are traces of mapwire's programs with 8 ranks. Their computing is scaled so that all nodes together compute as long as the paper's sequential run. SOR makes 100 iterations and IS 10: the paper does not say how many.");
    table.note(
        "WATER is made up by its known pattern: 3 steps of time, a minipage for each molecule.",
    );
    Ok(table)
}
