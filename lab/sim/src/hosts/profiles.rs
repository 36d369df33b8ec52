//! Machines: Millipage's cluster of 1997, one of today, and a computer that was measured.

use crate::hardware::{Constant, NS, Profile, Ps, US, constants};

use super::machine::{Machine, Notice};

/// 300-MHz Pentium II, Windows NT 4.0, FastMessages on Myrinet.
const MILLIPAGE: &[Constant] = constants! {
    AccessFault = 26 * US, Input: "Itzkovitz and Schuster 1999, Table 1: access fault";
    ReadProtection = 7 * US, Input: "the same: get protection";
    SetProtection = 12 * US, Input: "the same: set protection";
    LookupMinipage = 7 * US, Input: "the same: minipage translation";
    HandleRequest = 31 * US, Fitted: "the same, §4.2: a minipage of 128 bytes is read in 204 us, shared among the messages that this takes";
    PlaceByte = 8 * NS, Fitted: "the same: a minipage of 4 KB is read in 314 us";
    HandleSync = 3_000 * NS, Derived: "the same: a barrier takes 13.4 us more for each host, of which a message taken in and one sent, with their bytes and a switch, are 10.4";
    LocalCall = 13_500 * NS, Fitted: "the same: a lock and its unlock take 67 us at least";
    BarrierCall = 45_500 * NS, Derived: "the same: a barrier of one host takes 59 us, without LocalCall";
    SendMessage = 4_000 * NS, Assumed: "Table 1: 32 bytes take 12 us, a third each at sender, network and receiver; only the sum is stated";
    SendByte = 8 * NS, Assumed: "Table 1: 4 KB take 78 us more than 32 bytes, 19.2 ns a byte, of which programmed I/O takes most; only the sum is stated";
    WireLatency = 3_400 * NS, Derived: "Table 1: 12 us, without hosts and bytes";
    WireByte = 6_250, Input: "Myrinet, 1.28 Gb/s";
    ReceiveMessage = 4_000 * NS, Assumed: "as SendMessage";
    ReceiveByte = 4_950, Assumed: "what SendByte and WireByte leave of 19.2 ns";
    Signal = 5 * US, Assumed: "SetEvent of Windows NT";
    WakeDelay = US, Input: "§3.4: 1 us from the interrupt to the signal at the thread";
    ThreadSwitch = 5 * US, Assumed: "of Windows NT on this processor";
    ThreadTurn = 20_000 * US, Assumed: "quantum of Windows NT Workstation 4.0";
    PollPeriod = 1_000 * US, Input: "§3.4: a timer of 1 ms";
    PollNothing = 10 * US, Assumed: "two switches of threads, and a look";
};

/// A cluster of today: servers of one rank each, Linux, 100 Gb/s with remote DMA. Nothing of it was measured together.
const TODAY: &[Constant] = constants! {
    AccessFault = 1_500 * NS, Assumed: "a signal on the faulting thread, and its return";
    SetProtection = 900 * NS, Assumed: "a system call and the flush of a few entries";
    HandleRequest = 250 * NS, Assumed: "the protocol's state lies in the caches";
    HandleSync = 150 * NS, Assumed: "the same";
    LocalCall = 60 * NS, Assumed: "a call under a lock";
    SendMessage = 200 * NS, Assumed: "a work request";
    WireLatency = 1_200 * NS, Assumed: "one way of a small RDMA message";
    WireByte = 80, Input: "100 Gb/s";
    ReceiveMessage = 150 * NS, Assumed: "a completion";
    ReceiveByte = 0, Assumed: "data come by remote DMA";
    Signal = 1_200 * NS, Assumed: "a wake-up by a system call, or an interrupt";
    WakeDelay = 4_000 * NS, Assumed: "a sleeping thread of an idle processor";
    ThreadSwitch = 1_200 * NS, Assumed: "with what the caches lose";
    ThreadTurn = 3_000 * US, Assumed: "Linux's slice";
    Spin = 50 * US, Assumed: "about the price of a wake-up, and a few answers";
};

/// Millipage's cluster, with messages found by `notice`.
pub fn millipage(notice: Notice) -> Machine {
    Machine {
        profile: Profile::new("Millipage: 300-MHz Pentium II, Windows NT 4.0, FM on Myrinet", 0, MILLIPAGE),
        processors: 1,
        ranks_per_host: 1,
        notice,
        hold_ns: 0,
    }
}

pub fn today() -> Machine {
    Machine {
        profile: Profile::new("Servers of today, 100 Gb/s with remote DMA", 0, TODAY),
        processors: 2,
        ranks_per_host: 1,
        notice: Notice::Waiters,
        hold_ns: 5_000,
    }
}

/// What `mapwire bench fault` and `mapwire bench lock` measure of a computer, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// A minipage of 128 bytes is read from a rank that polls.
    pub read_ps: Ps,
    /// The raw parts of that: a fault, a change of protection, a round trip of a flag and a copy.
    pub parts_ps: Ps,
    /// The round trip of a flag.
    pub round_trip_ps: Ps,
    /// A minipage of 4 KiB is read from a rank that polls.
    pub read_page_ps: Ps,
    /// A minipage of 128 bytes is read from a rank that computes.
    pub read_from_busy_ps: Ps,
    /// A lock is taken where it was last, and given back.
    pub lock_unlock_ps: Ps,
}

/// The computer that `measured` was measured on: all ranks on one host with so many processors.
pub fn here(measured: &Measured, processors: u16) -> Machine {
    let Measured { read_ps, parts_ps, round_trip_ps, read_page_ps, read_from_busy_ps, lock_unlock_ps } = *measured;
    // A change of protection is part of the parts, and one more is made by the owner.
    let protect_ps = parts_ps / 5;
    let fault_ps = parts_ps.saturating_sub(protect_ps + round_trip_ps);
    // Two messages about the minipage are handled.
    let handle_ps = read_ps.saturating_sub(parts_ps + protect_ps) / 2;
    let byte_ps = read_page_ps.saturating_sub(read_ps) / (4096 - 128);
    let busy_ps = read_from_busy_ps.saturating_sub(read_ps);
    let constants: &[Constant] = constants! {
        AccessFault = fault_ps, Derived: "bench fault: the raw parts, without the other constants";
        SetProtection = protect_ps, Assumed: "a fifth of the raw parts";
        HandleRequest = handle_ps, Derived: "bench fault: what a read takes besides its raw parts, shared by two messages";
        HandleSync = handle_ps, Assumed: "as HandleRequest";
        LocalCall = lock_unlock_ps / 2, Derived: "bench lock: half of lock and unlock";
        WireLatency = round_trip_ps / 2, Derived: "bench fault: half of a flag's round trip";
        SendByte = byte_ps.max(20), Derived: "bench fault: 4 KiB beside 128 bytes";
        Signal = busy_ps / 4, Assumed: "a quarter of what a read from a busy rank takes longer";
        WakeDelay = busy_ps / 2, Assumed: "a half of the same";
        ThreadSwitch = busy_ps / 4, Assumed: "a quarter of the same";
        ThreadTurn = 3_000 * US, Assumed: "Linux's slice";
        Spin = 2 * busy_ps, Assumed: "ranks poll for the price of a wake-up, once or twice";
    };
    Machine {
        profile: Profile::new("This computer, as `mapwire bench` measured it", 0, constants),
        processors,
        ranks_per_host: 0,
        notice: Notice::Waiters,
        hold_ns: 5_000,
    }
}
