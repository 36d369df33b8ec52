//! The machines: GMS-NP's testbed (§4.1), and a SmartNIC of today.

use crate::hardware::{Constant, NS, Profile, constants};

/// 266-MHz Pentium II, FreeBSD 2.2.2; 33-MHz LANai 4.1 with 1 MB; Trapeze.
const TESTBED: &[Constant] = constants! {
    NicReceive = 6_500 * NS, Input: "§4.2: the interrupt comes 6.5 us after the message";
    NicDispatch = 1_125 * NS, Derived: "Table 3: 75.2 - 73.7 us, while the wire's DMA slows it";
    NicDecode = 4_000 * NS, Input: "§4.2: decodes and readies the first DMA in 4 us";
    NicLookup = 2_300 * NS, Derived: "§4.2: NM's scan takes 3.5 us, of which an entry is 1.2 us (§4.4)";
    NicScan = 1_200 * NS, Input: "§4.4: an entry of four words";
    NicScanInDma = 1_600 * NS, Input: "§4.4: the same during a DMA";
    NicPrepare = 2_500 * NS, Input: "§4.2: NM's outgoing message";
    NicPrepareInDma = 5_000 * NS, Derived: "twice NicPrepare. §4.7: one DMA slows programs by as much as 50 %";
    NicModify = 5_200 * NS, Fitted: "Table 5: 19 % for HM (I) at 10,000/s";
    DmaSetup = 900 * NS, Input: "§4.4: programming the registers";
    DmaLatency = 0, Input: "§4.4: behind the set-up, time is linear in the entries";
    DmaBlock = 250 * NS, Input: "§4.4: an entry of 32 bytes";
    BusWaitActive = 3_000 * NS, Fitted: "Table 2: HM (A) is 1 us more than HM (I)";
    BusWaitCold = 11_000 * NS, Fitted: "Table 2: HM (C) is 9 us more than HM (I)";
    WireByte = 6_250, Input: "Myrinet, 1.28 Gb/s: Boden et al. 1995, paper's reference 5";
    WireLatency = 500 * NS, Assumed: "one switch and cables";
    PulseBytes = 256, Assumed: "smallest piece of Trapeze's cut-through";
    HeaderBytes = 16, Assumed: "route, handler id, length";
    HostInterrupt = 10_000 * NS, Input: "UTLB §6.2: 10 us on a 300-MHz Pentium II";
    HostHandler = 10_500 * NS, Derived: "Table 1: GMS (I) HP 20.5 us, without the interrupt";
    HostReturn = 4_300 * NS, Derived: "Table 5: 13 % for GMS (I) at 5,236/s is 24.8 us a getpage, without Table 1's 20.5";
    HostScan = 150 * NS, Derived: "§2.5: the host is eight times faster than the NIC's processor, 1.2 us";
    HostCold = 98_000 * NS, Derived: "Table 1: GMS (C) - GMS (I)";
    CacheHalfLife = 1_780_000 * NS, Fitted: "Table 5: 18 % for GMS (A) at 5,236/s";
    HostRequest = 25_800 * NS, Fitted: "Table 2: half of what GMS (I) takes besides the other steps";
    HostServe = 25_800 * NS, Fitted: "Table 2: the other half";
    HostFault = 24_000 * NS, Derived: "Table 4 - Table 2: GMS (I)";
};

/// A BlueField-class SmartNIC in a server of today. What is assumed is varied in the table about it.
const SMART_NIC: &[Constant] = constants! {
    NicReceive = 1_000 * NS, Assumed: "one way of a small RDMA message within the receiving node";
    NicDecode = 400 * NS, Assumed: "an Arm core of 2 GHz finds the message by polling: 800 cycles";
    NicLookup = 150 * NS, Assumed: "a miss of the Arm core's caches";
    NicScan = 4 * NS, Assumed: "8 cycles an entry";
    NicScanInDma = 4 * NS, Assumed: "DMA does not slow a core with caches";
    NicPrepare = 300 * NS, Assumed: "a work request and a doorbell";
    NicPrepareInDma = 300 * NS, Assumed: "the same";
    NicModify = 20 * NS, Assumed: "40 cycles";
    DmaSetup = 300 * NS, Assumed: "a DMA request and a doorbell";
    DmaLatency = 900 * NS, Assumed: "PCIe round trip through the SmartNIC's switch";
    DmaBlock = 640, Derived: "PCIe Gen5 x16 (NVIDIA, BlueField-3 B3210): 50 GB/s of its 63";
    WireByte = 80, Input: "100 GbE (NVIDIA, BlueField-3 B3210)";
    WireLatency = 600 * NS, Assumed: "one switch and cables";
    PulseBytes = 1024, Assumed: "a packet";
    HeaderBytes = 58, Input: "Ethernet, IPv4, UDP, InfiniBand BTH, ICRC";
    HostInterrupt = 5_750 * NS, Derived: "FastWake (APNet 2023): 80 % less is 0.35 us above the hardware's limit, here 1 us";
    HostHandler = 800 * NS, Assumed: "driver and lookup, 2,400 cycles at 3 GHz";
    HostReturn = 500 * NS, Assumed: "back to the program";
    HostScan = NS, Assumed: "3 cycles an entry";
    HostCold = 10_000 * NS, Assumed: "100 misses of 100 ns";
    CacheHalfLife = 1_000_000 * NS, Assumed: "caches are larger and faster to fill";
    BusWaitActive = 100 * NS, Assumed: "memory in heavy use";
    BusWaitCold = 200 * NS, Assumed: "the same";
    HostRequest = 1_000 * NS, Assumed: "global memory's work";
    HostServe = 1_000 * NS, Assumed: "global memory's work";
    HostFault = 2_000 * NS, Assumed: "a page fault";
};

/// Bytes that the table may take of the LANai's 1 MB; the control program and its buffers have the rest.
const TESTBED_TABLE: usize = 512 << 10;

pub fn testbed() -> Profile {
    Profile::new("GMS-NP testbed, 1999", TESTBED_TABLE, TESTBED)
}

/// Bytes of the table in a SmartNIC's memory, which has room for much more.
const SMART_NIC_TABLE: usize = 1 << 20;

pub fn smart_nic() -> Profile {
    Profile::new("SmartNIC, BlueField-class", SMART_NIC_TABLE, SMART_NIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_stands_once_in_a_profile() {
        for profile in [testbed(), smart_nic()] {
            for constant in profile.constants() {
                let all = profile.constants().iter();
                let same = all.filter(|row| row.cost == constant.cost);
                assert_eq!(same.count(), 1, "{}: {constant:?}", profile.name);
            }
        }
    }
}
