//! The machine of UTLB §4.2, and its costs on VMMC's.

use crate::hardware::{Constant, NS, Profile, constants};
use crate::paper::vmmc;

/// What translation costs besides what VMMC's machine states.
const TRANSLATION: &[Constant] = constants! {
    HostCheck = 500 * NS, Input: "§6.2: user_check";
    HostPin1 = 27_000 * NS, Input: "Table 1";
    HostPin2 = 30_000 * NS, Input: "Table 1";
    HostPin4 = 36_000 * NS, Input: "Table 1";
    HostPin8 = 47_000 * NS, Input: "Table 1";
    HostPin16 = 70_000 * NS, Input: "Table 1";
    HostPin32 = 115_000 * NS, Input: "Table 1";
    HostUnpin1 = 25_000 * NS, Input: "Table 1";
    NicMiss = 300 * NS, Derived: "Table 2: total miss cost of an entry, without its DMA";
    NicMissEntry = 13 * NS, Derived: "Table 2: the same of 32 entries is 0.7 us";
};

/// 300-MHz Pentium II, Windows NT 4.0; 33-MHz LANai 4.2 with 1 MB.
const MACHINE: &[Constant] = constants! {
    NicTranslate = 800 * NS, Input: "Table 2: hit cost";
    HostInterrupt = 10_000 * NS, Input: "§6.2: invoking the handler";
    HostPinServing = 17_000 * NS, Derived: "Table 6: of whole microseconds, only 17 and 15 give its Intr columns by §6.2's equation; each is 10 less than Table 1's";
    HostUnpinServing = 15_000 * NS, Derived: "the same";
    DmaSetup = 900 * NS, Input: "GMS-NP §4.4, on a NIC of the same clock: programming the registers";
    HostDma4 = 1_500 * NS, Input: "Table 2";
    HostDma8 = 1_600 * NS, Input: "Table 2";
    HostDma16 = 1_600 * NS, Input: "Table 2";
    HostDma32 = 1_900 * NS, Input: "Table 2";
    HostDma64 = 2_100 * NS, Input: "Table 2";
    HostDma128 = 2_500 * NS, Input: "Table 2";
    WireByte = 6_250, Input: "§4.2: 160 MB/s";
    NicLoop = 1_000 * NS, Assumed: "what is neither library nor lookup is in none of the tables";
};

/// The machine of Tables 1, 2 and 6.
pub fn machine() -> Profile {
    Profile::new("UTLB, 1998", 0, MACHINE).and("UTLB, 1998", TRANSLATION)
}

/// The machine on which VMMC was measured, with UTLB's costs of translation.
pub fn on_vmmc() -> Profile {
    vmmc::machine().and("VMMC on Myrinet, with UTLB's costs of translation", TRANSLATION)
}
