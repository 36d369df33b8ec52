//! The machine: the nodes of Table II. The paper states its buses, clocks and wires, and how long misses take; what VMMC's firmware does
//! on a NIC is known of a slower one of the same make, and goes with the clock.

use crate::hardware::{Constant, NS, Profile, US, constants};

/// Two Pentium III of 800 MHz, PCI of 32 bits and 33 MHz, LANai 9 of 133 MHz with 2 MB.
const TESTBED: &[Constant] = constants! {
    HostWrite = 121 * NS, Input: "VMMC §5.2: a write over a PCI bus of the same width and clock";
    CommandWords = 5, Derived: "VMMC §4.5, §5.2: a long send's";
    HostPost = 497 * NS, Derived: "VMMC §5.3: 2.4 us at 166 MHz; here 800 MHz";
    HostNotice = 100 * NS, Assumed: "a cache miss";
    NicLoop = 620 * NS, Derived: "VMMC §6: 2.5 us at 33 MHz; here 133 MHz (Table II)";
    NicPickUp = 124 * NS, Derived: "VMMC §5.2: 0.5 us at 33 MHz";
    NicHeader = 124 * NS, Derived: "the same";
    NicStartNetwork = 124 * NS, Derived: "the same";
    NicTakePacket = 124 * NS, Derived: "the same";
    NicCopyWord = 22 * NS, Assumed: "three cycles of 133 MHz: load, store, count";
    NicTranslate = 198 * NS, Derived: "UTLB Table 2: a hit takes 0.8 us at 33 MHz";
    NicTranslateReceive = 198 * NS, Derived: "the same cache";
    DmaSetup = 223 * NS, Derived: "GMS-NP §4.4: 0.9 us at 33 MHz";
    HostDma4 = 1_323 * NS, Derived: "VMMC §5.2: 2 us with the setup of a NIC of 33 MHz; the rest is the bus";
    HostDma4K = 32_120 * NS, Derived: "Table II: 133 MB/s, behind what a word takes";
    HostDma64K = 494_073 * NS, Derived: "the same";
    WireByte = 6_250, Input: "Table II: 160 MB/s in each direction";
    WireLatency = 300 * NS, Assumed: "a full crossbar of 16 ports and cables";
    HeaderBytes = 4, Assumed: "route and CRC";
    MissDelayLeast = 0, Input: "§V.C: usually within 0 to 50 us";
    MissDelayMost = 50 * US, Input: "the same";
    MissProcessingLeast = 5 * US, Input: "§V.C: within 5 to 500 us";
    MissProcessingMost = 500 * US, Input: "the same";
    MissProcessingEven = 0, Assumed: "§V.C states the range only: short times are taken to be as likely as long ones; varied";
    LinkTimeout = 1_000 * US, Assumed: "the text does not say; varied";
    LinkWindow = 64 << 10, Assumed: "§V.A: 270 KB are code and buffers, of which code has 50 to 150 (§II); varied";
};

pub fn testbed() -> Profile {
    Profile::new("dynamic handle lookup's testbed, LANai 9", 0, TESTBED)
}
