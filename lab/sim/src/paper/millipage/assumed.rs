//! How much the constants matter that nobody states.

use super::applications::APPLICATIONS;
use super::bench;
use super::{seconds, us};
use crate::hardware::{Cost, Origin};
use crate::hosts::{self, Machine, Notice, millipage};
use crate::paper::{Cell, PaperError, Table};

/// The table: constants at half and at twice their value.
pub(super) fn table() -> Result<Table, PaperError> {
    let caption = "constants that are assumed, at half and at twice their value";
    let columns = ["read, interrupts, us", "read, busy, polling, us", "IS, interrupts, s", "IS, polling, s"];
    let mut table = Table::new("Assumed", caption, "", &["constant"], &columns);
    let is = APPLICATIONS[2].program()?;
    let mut row = |name: &str, change: &dyn Fn(Machine) -> Machine| -> Result<(), PaperError> {
        let (interrupts, polling) = (change(millipage(Notice::Interrupts)), change(millipage(Notice::Polling)));
        let work = |machine: &Machine| -> Result<i64, PaperError> {
            let outcome = hosts::run(machine, &is, &[])?;
            Ok(seconds(outcome.work_ps.unwrap_or(0)))
        };
        let cells = vec![
            Cell::new(us(bench::read(&interrupts, 128, false)?)),
            Cell::new(us(bench::read_at_random(&polling)?)),
            Cell::new(work(&interrupts)?),
            Cell::new(work(&polling)?),
        ];
        table.row(&[name], cells);
        Ok(())
    };
    row("as they are", &|machine| machine)?;
    let machine = millipage(Notice::Interrupts);
    for constant in machine.profile.constants().iter().filter(|it| it.origin == Origin::Assumed) {
        for (word, halves) in [("half", 1), ("twice", 4)] {
            let value = constant.value * halves / 2;
            let cost = constant.cost;
            row(&format!("{cost:?}, {word}"), &|machine| scaled(machine, cost, value))?;
        }
    }
    table.note("Of what a message and a byte take, only the sums over sender, wire and receiver are known: a part is varied alone here, and the sum with it.");
    Ok(table)
}

/// The machine with another value of a constant.
pub(super) fn scaled(machine: Machine, cost: Cost, value: u64) -> Machine {
    Machine { profile: machine.profile.clone().with(cost, value), ..machine }
}
