//! The machine: the nodes of Table II. The paper states its buses, clocks and wires, and how long misses take; what VMMC's firmware does
//! on a NIC is known of a slower one of the same make, and goes with the clock.

use crate::hardware::{Constant, Cost, NS, Origin, Profile, US, is};

use Origin::{Assumed, Derived, Input};

/// Two Pentium III of 800 MHz, PCI of 32 bits and 33 MHz, LANai 9 of 133 MHz with 2 MB.
const TESTBED: &[Constant] = &[
    is(Cost::HostWrite, 121 * NS, Input, "VMMC §5.2: a write over a PCI bus of the same width and clock"),
    is(Cost::CommandWords, 5, Derived, "VMMC §4.5, §5.2: a long send's"),
    is(Cost::HostPost, 497 * NS, Derived, "VMMC §5.3: 2.4 us at 166 MHz; here 800 MHz"),
    is(Cost::HostNotice, 100 * NS, Assumed, "a cache miss"),
    is(Cost::NicLoop, 620 * NS, Derived, "VMMC §6: 2.5 us at 33 MHz; here 133 MHz (Table II)"),
    is(Cost::NicPickUp, 124 * NS, Derived, "VMMC §5.2: 0.5 us at 33 MHz"),
    is(Cost::NicHeader, 124 * NS, Derived, "the same"),
    is(Cost::NicStartNetwork, 124 * NS, Derived, "the same"),
    is(Cost::NicTakePacket, 124 * NS, Derived, "the same"),
    is(Cost::NicCopyWord, 22 * NS, Assumed, "three cycles of 133 MHz: load, store, count"),
    is(Cost::NicTranslate, 198 * NS, Derived, "UTLB Table 2: a hit takes 0.8 us at 33 MHz"),
    is(Cost::NicTranslateReceive, 198 * NS, Derived, "the same cache"),
    is(Cost::DmaSetup, 223 * NS, Derived, "GMS-NP §4.4: 0.9 us at 33 MHz"),
    is(Cost::HostDma4, 1_323 * NS, Derived, "VMMC §5.2: 2 us with the setup of a NIC of 33 MHz; the rest is the bus"),
    is(Cost::HostDma4K, 32_120 * NS, Derived, "Table II: 133 MB/s, behind what a word takes"),
    is(Cost::HostDma64K, 494_073 * NS, Derived, "the same"),
    is(Cost::WireByte, 6_250, Input, "Table II: 160 MB/s in each direction"),
    is(Cost::WireLatency, 300 * NS, Assumed, "a full crossbar of 16 ports and cables"),
    is(Cost::HeaderBytes, 4, Assumed, "route and CRC"),
    is(Cost::MissDelayLeast, 0, Input, "§V.C: usually within 0 to 50 us"),
    is(Cost::MissDelayMost, 50 * US, Input, "the same"),
    is(Cost::MissProcessingLeast, 5 * US, Input, "§V.C: within 5 to 500 us"),
    is(Cost::MissProcessingMost, 500 * US, Input, "the same"),
    is(
        Cost::MissProcessingEven,
        0,
        Assumed,
        "§V.C states the range only: short times are taken to be as likely as long ones; varied",
    ),
    is(Cost::LinkTimeout, 1_000 * US, Assumed, "the text does not say; varied"),
    is(
        Cost::LinkWindow,
        64 << 10,
        Assumed,
        "§V.A: 270 KB are code and buffers, of which code has 50 to 150 (§II); varied",
    ),
];

/// The paper's testbed.
#[must_use]
pub fn testbed() -> Profile {
    Profile::new("dynamic handle lookup's testbed, LANai 9", 0, TESTBED)
}
