//! What the paper did not ask.

use super::applications::{APPLICATIONS, water as made};
use super::assumed::scaled;
use super::bench::work;
use super::{seconds, table_1};
use crate::hardware::{Cost, Profile, Ps, US};
use crate::hosts::{self, Machine, Notice, Program, millipage, today};
use crate::paper::{Cell, PaperError, Table};

const BOTH: [Notice; 2] = [Notice::Polling, Notice::Interrupts];

/// Where the time of Table 1 comes from: the same programs on a machine where nothing but computing takes time, and how much they ask for.
pub(super) fn costless() -> Result<Table, PaperError> {
    let caption = "Table 1's programs where only computing takes time, and with interrupts";
    let columns = ["an eighth of seq.", "costless", "interrupts", "faults, count", "messages, count"];
    let mut table = Table::new("Costless", caption, "s", &["application"], &columns);
    let machine = millipage(Notice::Interrupts);
    let free = Machine { profile: Profile::new("costless", 0, &[]), ..machine.clone() };
    for application in &APPLICATIONS {
        let program = application.program()?;
        let outcome = hosts::run(&machine, &program, &[])?;
        let faults: u64 = outcome.ranks.iter().map(|rank| rank.faults).sum();
        table.row(
            &[application.name],
            vec![
                Cell::new(application.published[0] / 8),
                Cell::new(seconds(work(&free, &program)?)),
                Cell::new(seconds(outcome.work_ps.unwrap_or(0))),
                Cell::new(faults as i64 * 1000),
                Cell::new(outcome.messages as i64 * 1000),
            ],
        );
    }
    table.note("SOR: all that is above an eighth but 0.03 s is messages, which grow with the iterations. The paper does not say how many there are; with 50 instead of 100 it would take 1.02 s.");
    table.note("LU, TSP: costless, the programs are far below the paper's times already, and their messages cannot make up for it. What the paper's programs do besides is not in ours: its search of TSP, for one, reads the shortest length found so far from shared memory at each step, ours seldom.");
    Ok(table)
}

/// WATER by its steps of time, which the paper does not state.
pub(super) fn water() -> Result<Table, PaperError> {
    let caption = "WATER with other numbers of steps, all with the computing of the paper's sequential run";
    let columns = ["polling", "interrupts", "improvement, %"];
    let mut table = Table::new("WATER's steps", caption, "s", &["steps"], &columns);
    let computing_ps = APPLICATIONS[3].published[0] as Ps * 1_000_000_000;
    for steps in [2, 3, 5, 10] {
        let program = made(steps, computing_ps);
        let mut times = [0; 2];
        for (time, notice) in times.iter_mut().zip(BOTH) {
            *time = seconds(work(&millipage(notice), &program)?);
        }
        let mut cells: Vec<Cell> = times.iter().map(|time| Cell::new(*time)).collect();
        cells.push(Cell::new(table_1::improvement(times[0], times[1])));
        table.row(&[&steps.to_string()], cells);
    }
    Ok(table)
}

pub(super) fn timers() -> Result<Table, PaperError> {
    let caption = "does a faster timer save polling? each look takes 10 us";
    let columns = APPLICATIONS.map(|it| it.name);
    let mut table = Table::new("Timers", caption, "s", &["messages found by"], &columns);
    let programs: Vec<Program> = APPLICATIONS.iter().map(|it| it.program()).collect::<Result<_, _>>()?;
    let mut row = |name: &str, machine: &Machine| -> Result<(), PaperError> {
        let mut cells = Vec::new();
        for program in &programs {
            cells.push(Cell::new(seconds(work(machine, program)?)));
        }
        table.row(&[name], cells);
        Ok(())
    };
    for (name, period_us) in [
        ("polling at 10 ms", 10_000),
        ("polling at 1 ms", 1_000),
        ("polling at 0.3 ms", 300),
        ("polling at 0.1 ms", 100),
    ] {
        let machine = millipage(Notice::Polling);
        row(name, &scaled(machine, Cost::PollPeriod, period_us * US))?;
    }
    row("interrupts", &millipage(Notice::Interrupts))?;
    Ok(table)
}

/// The applications on a cluster of today, whose processors are as much faster as those of the traces were.
pub(super) fn machines() -> Result<Table, PaperError> {
    let caption = "speed-ups on 8 nodes: what all nodes compute, by the time that they take";
    let columns = APPLICATIONS.map(|it| it.name);
    let mut table = Table::new("Today", caption, "ratio", &["machine"], &columns);
    // A processor of today computes so many times faster.
    let faster = 20;
    for (name, machine, divisor) in [
        ("1997, polling", millipage(Notice::Polling), 1),
        ("1997, interrupts", millipage(Notice::Interrupts), 1),
        ("today", today(), faster),
        ("today's network, processors of 1997", today(), 1),
    ] {
        let mut cells = Vec::new();
        for application in &APPLICATIONS {
            let program = application.program()?.scaled(1, divisor);
            let computing_ps = application.published[0] as Ps * 1_000_000_000 / divisor;
            let taken_ps = work(&machine, &program)?.max(1);
            cells.push(Cell::new((computing_ps / (taken_ps / 1000).max(1)) as i64));
        }
        table.row(&[name], cells);
    }
    table.note(
        "Programs do not change with the machine: what a thread asks for, and in which order, is that of the trace.",
    );
    Ok(table)
}
