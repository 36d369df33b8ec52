//! The machine: the PCs and NICs that VMMC §5.1 names.

use crate::hardware::{Constant, NS, Profile, constants};

/// 166-MHz Pentium, PCI, Linux 2.0; 33-MHz LANai 4.1 with 256 KB.
const MACHINE: &[Constant] = constants! {
    HostWrite = 121 * NS, Input: "§5.2: a memory-mapped write over the PCI bus";
    CommandWords = 5, Derived: "§5.2: posting costs at least 0.5 us if only writes are used: four writes, and a long send names its source besides (§4.5)";
    HostPost = 2_395 * NS, Derived: "§5.3: sending a word synchronously takes about 3 us, without five writes";
    HostNotice = 200 * NS, Assumed: "a cache miss, and half a pass of the loop that spins";
    HostCopyByte = 20 * NS, Input: "§5.4: bcopy reaches 20-50 MB/s; the most, as what is compared is a maximum";
    NicLoop = 2_500 * NS, Derived: "§6: at least twice SHRIMP's 2-3 us from the request to the first byte: the least of 4-6 us, without the next three";
    NicPickUp = 500 * NS, Derived: "§5.2: picking up, preparing, starting the network DMA and receiving take 2.5 us: a quarter, without the wire's 0.5 us";
    NicHeader = 500 * NS, Derived: "the same";
    NicStartNetwork = 500 * NS, Derived: "the same";
    NicTakePacket = 500 * NS, Derived: "the same";
    NicCopyWord = 90 * NS, Assumed: "three cycles of 33 MHz: load, store, count";
    NicTranslate = 800 * NS, Input: "UTLB Table 2: a hit takes a processor of the same clock 0.8 us";
    NicSlowedByDma = 50, Input: "GMS-NP §4.7, on the same NIC: one DMA slows programs by as much as 50 %, the most (§4.4: a scan by 33 %)";
    NicSlowedByTwo = 100, Input: "GMS-NP §4.7: the processor stops when the host's and the wire's are active";
    DmaSetup = 900 * NS, Input: "GMS-NP §4.4, on the same NIC: programming the registers";
    HostDma4 = 2_000 * NS, Input: "§5.2: arbitration, starting the DMA and the transfer of a word";
    HostDma4K = 37_236_364, Input: "§5.2, Figure 1: 110 MB/s with blocks of 4 KB";
    HostDma64K = 512_000 * NS, Input: "§5.2, Figure 1: 128 MB/s with blocks of 64 KB";
    WireByte = 6_250, Input: "§5.2: 160 MB/s";
    WireLatency = 150 * NS, Assumed: "one switch and cables, so that a word's packet takes 0.5 us";
    HeaderBytes = 4, Assumed: "route and CRC";
    HostInterrupt = 10_000 * NS, Input: "UTLB §6.2, on a 300-MHz Pentium II";
    HostPinServing = 17_000 * NS, Derived: "UTLB Table 6: with 17 us here and 15 us for unpinning, §6.2's equation gives its Intr cells";
    HostUnpinServing = 15_000 * NS, Derived: "the same of a page given back";
};

pub fn machine() -> Profile {
    Profile::new("VMMC on Myrinet, 1997", 0, MACHINE)
}
