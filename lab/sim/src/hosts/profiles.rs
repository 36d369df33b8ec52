//! Machines: Millipage's cluster of 1997, and one of today.

use crate::hardware::{Constant, Cost, Origin, Profile, US};

use Origin::{Assumed, Derived, Input};

use super::machine::{Machine, Notice};

const fn is(cost: Cost, value: u64, origin: Origin, source: &'static str) -> Constant {
    Constant {
        cost,
        value,
        origin,
        source,
    }
}

/// Nanoseconds.
const NS: u64 = 1_000;

/// 300-MHz Pentium II, Windows NT 4.0, FastMessages on Myrinet.
const MILLIPAGE: &[Constant] = &[
    is(
        Cost::AccessFault,
        26 * US,
        Input,
        "Itzkovitz and Schuster 1999, Table 1: access fault",
    ),
    is(
        Cost::ReadProtection,
        7 * US,
        Input,
        "the same: get protection",
    ),
    is(
        Cost::SetProtection,
        12 * US,
        Input,
        "the same: set protection",
    ),
    is(
        Cost::LookupMinipage,
        7 * US,
        Input,
        "the same: minipage translation",
    ),
    is(
        Cost::HandleRequest,
        24 * US,
        Derived,
        "the same, §4.2: a minipage of 128 bytes is read in 204 us, shared among the messages that this takes",
    ),
    is(
        Cost::HandleSync,
        4 * US,
        Assumed,
        "no minipage is looked up and nothing protected",
    ),
    is(
        Cost::LocalCall,
        US,
        Assumed,
        "a call of a library under a lock",
    ),
    is(
        Cost::SendMessage,
        4_000 * NS,
        Derived,
        "Table 1: 32 bytes take 12 us, a third each at sender, network and receiver (the shares are assumed)",
    ),
    is(
        Cost::SendByte,
        8 * NS,
        Derived,
        "Table 1: 4 KB take 78 us more than 32 bytes, 19.2 ns a byte, of which programmed I/O takes most (assumed)",
    ),
    is(
        Cost::WireLatency,
        3_400 * NS,
        Derived,
        "Table 1: 12 us, without hosts and bytes",
    ),
    is(Cost::WireByte, 6_250, Input, "Myrinet, 1.28 Gb/s"),
    is(Cost::ReceiveMessage, 4_000 * NS, Derived, "as SendMessage"),
    is(
        Cost::ReceiveByte,
        4_950,
        Derived,
        "what SendByte and WireByte leave of 19.2 ns",
    ),
    is(Cost::Signal, 5 * US, Assumed, "SetEvent of Windows NT"),
    is(
        Cost::WakeDelay,
        US,
        Input,
        "§3.4: 1 us from the interrupt to the signal at the thread",
    ),
    is(
        Cost::ThreadSwitch,
        5 * US,
        Assumed,
        "of Windows NT on this processor",
    ),
    is(
        Cost::ThreadTurn,
        20_000 * US,
        Assumed,
        "quantum of Windows NT Workstation 4.0",
    ),
    is(Cost::PollPeriod, 1_000 * US, Input, "§3.4: a timer of 1 ms"),
    is(
        Cost::PollNothing,
        10 * US,
        Assumed,
        "two switches of threads, and a look",
    ),
];

/// A cluster of today: servers of one rank each, Linux, 100 Gb/s with remote DMA. Nothing of it was measured together.
const TODAY: &[Constant] = &[
    is(
        Cost::AccessFault,
        1_500 * NS,
        Assumed,
        "a signal on the faulting thread, and its return",
    ),
    is(
        Cost::SetProtection,
        900 * NS,
        Assumed,
        "a system call and the flush of a few entries",
    ),
    is(
        Cost::HandleRequest,
        250 * NS,
        Assumed,
        "the protocol's state lies in the caches",
    ),
    is(Cost::HandleSync, 150 * NS, Assumed, "the same"),
    is(Cost::LocalCall, 60 * NS, Assumed, "a call under a lock"),
    is(Cost::SendMessage, 200 * NS, Assumed, "a work request"),
    is(
        Cost::WireLatency,
        1_200 * NS,
        Assumed,
        "one way of a small RDMA message",
    ),
    is(Cost::WireByte, 80, Input, "100 Gb/s"),
    is(Cost::ReceiveMessage, 150 * NS, Assumed, "a completion"),
    is(Cost::ReceiveByte, 0, Assumed, "data come by remote DMA"),
    is(
        Cost::Signal,
        1_200 * NS,
        Assumed,
        "a wake-up by a system call, or an interrupt",
    ),
    is(
        Cost::WakeDelay,
        4_000 * NS,
        Assumed,
        "a sleeping thread of an idle processor",
    ),
    is(
        Cost::ThreadSwitch,
        1_200 * NS,
        Assumed,
        "with what the caches lose",
    ),
    is(Cost::ThreadTurn, 3_000 * US, Assumed, "Linux's slice"),
    is(
        Cost::Spin,
        50 * US,
        Assumed,
        "about the price of a wake-up, and a few answers",
    ),
];

/// Millipage's cluster, with messages found by `notice`.
#[must_use]
pub fn millipage(notice: Notice) -> Machine {
    Machine {
        profile: Profile::new(
            "Millipage: 300-MHz Pentium II, Windows NT 4.0, FM on Myrinet",
            0,
            MILLIPAGE,
        ),
        processors: 1,
        ranks_per_host: 1,
        notice,
        hold_ns: 0,
    }
}

/// A cluster of today.
#[must_use]
pub fn today() -> Machine {
    Machine {
        profile: Profile::new("Servers of today, 100 Gb/s with remote DMA", 0, TODAY),
        processors: 2,
        ranks_per_host: 1,
        notice: Notice::Waiters,
        hold_ns: 5_000,
    }
}
