//! The measurements of the paper: reads, writes, locks and barriers between hosts.

use crate::hardware::{Cost, Ps, US};
use crate::hosts::{self, HostsError, Machine, Notice, Outcome, Program};

/// Minipages, locks and barriers of a measurement.
const TIMES: u32 = 200;

pub(super) const NODES: u16 = 8;

/// What one operation of `rank` takes, of so many.
fn mean(spent_ps: Ps, times: u64) -> Ps {
    spent_ps.checked_div(times).unwrap_or(0)
}

/// What a program takes between its first barrier and its last.
pub(super) fn work(machine: &Machine, program: &Program) -> Result<Ps, HostsError> {
    let outcome = hosts::run(machine, program, &[])?;
    Ok(outcome.work_ps.unwrap_or(outcome.total_ps))
}

/// The mean time of a load of a minipage that another node has created, with or without a thread that computes there.
pub(super) fn read(machine: &Machine, bytes: u64, is_busy: bool) -> Result<Ps, HostsError> {
    let program = hosts::reads(NODES, TIMES, bytes, 0);
    let backgrounds: &[u16] = if is_busy { &[0] } else { &[] };
    let outcome = hosts::run(machine, &program, backgrounds)?;
    let reader = &outcome.ranks[1];
    Ok(mean(reader.spent.faults_ps, reader.faults))
}

/// The mean time of a store to a minipage of which so many others have copies.
pub(super) fn write(machine: &Machine, bytes: u64, copies: u16) -> Result<Ps, HostsError> {
    let program = hosts::writes(NODES, TIMES, bytes, copies);
    let outcome = hosts::run(machine, &program, &[])?;
    let writer = &outcome.ranks[usize::from(NODES) - 1];
    Ok(mean(writer.spent.faults_ps, writer.faults))
}

/// The mean time of a lock and its unlock.
pub(super) fn lock(machine: &Machine, nodes: u16, had_before: bool) -> Result<Ps, HostsError> {
    let program = hosts::locks(nodes, TIMES, had_before);
    let outcome = hosts::run(machine, &program, &[])?;
    Ok(mean(outcome.ranks[1].spent.locks_ps, TIMES.into()))
}

/// The mean time of a barrier of so many nodes.
pub(super) fn barrier(machine: &Machine, nodes: u16) -> Result<Ps, HostsError> {
    let program = hosts::barriers(nodes, TIMES);
    let outcome = hosts::run(machine, &program, &[])?;
    Ok(mean(outcome.work_ps.unwrap_or(0), TIMES.into()))
}

/// A message of so many bytes, and one as long that answers it, without the shared memory.
pub(super) fn round_trip(machine: &Machine, bytes: u64) -> Ps {
    let of = |cost| machine.profile.of(cost);
    let one_way_ps = of(Cost::SendMessage) + of(Cost::WireLatency) + of(Cost::ReceiveMessage);
    let byte_ps = of(Cost::SendByte) + of(Cost::WireByte) + of(Cost::ReceiveByte);
    2 * (one_way_ps + bytes * byte_ps)
}

/// A run of loads of 128 bytes by a reader that computes for up to so long before each, with a thread that computes at the owner.
fn reads(machine: &Machine, count: u32, think_ps: Ps) -> Result<Outcome, HostsError> {
    let program = hosts::reads(NODES, count, 128, think_ps);
    hosts::run(machine, &program, &[0])
}

/// The mean time of a load from a node that computes, at times that have nothing to do with the beat of its timer.
pub(super) fn read_at_random(machine: &Machine) -> Result<Ps, HostsError> {
    let outcome = reads(machine, TIMES, 10_000 * US)?;
    let reader = &outcome.ranks[1];
    Ok(mean(reader.spent.faults_ps, reader.faults))
}

/// The processor time that the threads of the owner which handle messages take for each read, empty looks of its timer included.
pub(super) fn serving(machine: &Machine, think_ps: Ps) -> Result<Ps, HostsError> {
    // Without what they take before the first read.
    let (few, many) = (reads(machine, TIMES, think_ps)?, reads(machine, 2 * TIMES, think_ps)?);
    let more = |of: fn(&Outcome) -> u64| of(&many) - of(&few);
    let period_ps = machine.profile.of(Cost::PollPeriod).max(1);
    let reads = more(|it| it.ranks[1].faults);
    let reading_ps = more(|it| it.ranks[1].spent.faults_ps + it.ranks[1].spent.computing_ps);
    let looks = match machine.notice {
        // The look that finds a request is counted already.
        Notice::Polling => (reading_ps / period_ps).saturating_sub(reads),
        _ => 0,
    };
    let looks_ps = looks * machine.profile.of(Cost::PollNothing);
    let served_ps = more(|it| it.ranks[0].serving_ps);
    Ok(mean(served_ps + looks_ps, reads))
}
