//! Two network interfaces of today. What their vendors do not state is known of measurements that others have published, or it is assumed
//! and varied.

use crate::hardware::{Constant, NS, Profile, constants};

/// The bus and the wire of both.
const COMMON: &[Constant] = constants! {
    DmaLatency = 532 * NS, Assumed: "about what Neugebauer et al. (SIGCOMM 2018) measured for a read of 64 bytes over PCIe Gen3, without the transfer";
    DmaStoreLatency = 266 * NS, Assumed: "a write goes one way: half of a read";
    WireByte = 80, Input: "100 Gb/s (Potter 2018, Table: ConnectX-4 MT27700)";
    WireLatency = 50 * NS, Assumed: "0.5 m of copper and two ends of a link";
    HeaderBytes = 30, Input: "InfiniBand: local route 8, base transport 12, CRCs 6, link 4";
    HostInterrupt = 5_750 * NS, Derived: "FastWake (APNet 2023): 80 % less is 0.35 us above the hardware's limit, here 1 us";
    HostHandler = 800 * NS, Assumed: "driver and table, 2,400 cycles at 3 GHz";
    HostPinServing = 250 * NS, Assumed: "get_user_pages and a DMA mapping, 750 cycles";
    HostUnpinServing = 150 * NS, Assumed: "the opposite";
    HostPost = 50 * NS, Assumed: "150 cycles of a library";
    HostWrite = 10 * NS, Assumed: "a word of a line that is combined and written at once";
    CommandWords = 5, Derived: "as in VMMC";
    HostNotice = 50 * NS, Assumed: "a miss of the last cache";
};

/// A NIC whose steps are hardware.
const RNIC: &[Constant] = constants! {
    HostDma4 = 10 * NS, Assumed: "header of a PCIe packet at 13 GB/s";
    HostDma4K = 325 * NS, Assumed: "PCIe Gen3 x16 carries 15.75 GB/s; in packets of 256 bytes about 13 of them are data";
    HostDma64K = 5_051 * NS, Assumed: "the same";
    NicPickUp = 194 * NS, Derived: "Potter 2018: 0.83 us for 32 bytes sent inline, without all other steps; the write over PCIe is in it";
    NicHeader = 20 * NS, Assumed: "a stage of a pipeline";
    NicStartNetwork = 20 * NS, Assumed: "the same";
    NicTakePacket = 20 * NS, Assumed: "the same";
    NicTranslate = 20 * NS, Assumed: "the same";
    NicTranslateReceive = 20 * NS, Assumed: "the same";
    NicMiss = 20 * NS, Assumed: "the same";
};

/// A NIC whose steps are programs of an Arm core.
const SMART_NIC: &[Constant] = constants! {
    NicPickUp = 400 * NS, Assumed: "a core of 2 GHz (NVIDIA, DOCA: Arm Cortex-A78) polls and decodes: 800 cycles";
    NicHeader = 100 * NS, Assumed: "200 cycles";
    NicStartNetwork = 150 * NS, Assumed: "a doorbell, 300 cycles";
    NicTakePacket = 300 * NS, Assumed: "600 cycles";
    NicTranslate = 50 * NS, Assumed: "hash and compare, 100 cycles";
    NicTranslateReceive = 50 * NS, Assumed: "the same";
    NicMiss = 100 * NS, Assumed: "200 cycles";
    DmaSetup = 300 * NS, Assumed: "a DMA request and a doorbell";
    HostDma4 = 310 * NS, Assumed: "the setup, and the header of a PCIe packet at 13 GB/s";
    HostDma4K = 625 * NS, Derived: "the setup, and PCIe Gen3 x16 as for the RNIC";
    HostDma64K = 5_351 * NS, Derived: "the same";
};

/// An RNIC of the class of ConnectX-4 with 100 Gb/s.
pub fn rnic() -> Profile {
    profile("RNIC, 100 Gb/s, PCIe Gen3", RNIC)
}

/// The same wires and bus with a programmable NIC.
pub fn smart_nic() -> Profile {
    profile("SmartNIC with Arm cores, BlueField-class", SMART_NIC)
}

fn profile(name: &'static str, own: &[Constant]) -> Profile {
    Profile::new(name, 0, &[COMMON, own].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_stands_once_in_a_profile() {
        for profile in [rnic(), smart_nic()] {
            for constant in profile.constants() {
                let all = profile.constants().iter();
                let same = all.filter(|row| row.cost == constant.cost);
                assert_eq!(same.count(), 1, "{}: {constant:?}", profile.name);
            }
        }
    }
}
