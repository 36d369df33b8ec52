//! How much the constants matter that nobody states.

use super::tables::Tables;
use crate::directory::{HostLoad, MachineError, Placement};
use crate::hardware::{Constant, Cost, Origin, Profile};
use crate::paper::Table;
use crate::paper::numbers::us;

fn predicted(tables: &Tables) -> Result<[i64; 4], MachineError> {
    let bench = |placement| tables.bench(placement, HostLoad::Idle);
    let (host, nic) = (bench(Placement::Host), bench(Placement::NicHostMemory));
    let (lookup, getpage) = (nic.lookup()?.total_ps(), nic.latency()?);
    let gain = us(host.latency()?) - us(getpage);
    let message = us(host.messages(8192, 1)?[0]);
    Ok([us(lookup), us(getpage), gain, message])
}

impl Tables {
    /// Predictions with each assumed constant halved and doubled.
    pub(super) fn assumed(&self) -> Result<Table, MachineError> {
        let columns = ["lookup HM", "getpage HM", "GMS - HM", "8 KB one way"];
        let keys = ["constant", "value"];
        let caption = "predictions for the testbed when a constant is another that nobody states; the rest as it is";
        let mut table = Table::new("Assumed constants", caption, "us", &keys, &columns);
        let mut row = |name: &str, value: &str, profile: Profile| -> Result<(), MachineError> {
            let tables = Self { profile, ..self.clone() };
            let cells = predicted(&tables)?;
            table.row(&[name, value], cells);
            Ok(())
        };
        row("all", "as they are", self.profile.clone())?;
        let varied = |it: &Constant| it.origin == Origin::Assumed || it.cost == Cost::HostInterrupt;
        for (name, word, Constant { cost, value, .. }) in self.profile.varied(varied) {
            let mut profile = self.profile.clone().with(cost, value);
            if cost == Cost::HostInterrupt {
                // What the interrupt and its handler take together is known.
                let both = self.profile.of(cost) + profile.of(Cost::HostHandler);
                profile = profile.with(Cost::HostHandler, both.saturating_sub(value));
            }
            row(&name, word, profile)?;
        }
        table.note("How interrupt and handler share the 20.5 us that are known of both is taken from another paper; it is varied, too. It matters only where getpages meet.");
        table.note(
            "Time that is added on the way is there for GMS and GMS-NP alike: what one gains on the other stays.",
        );
        Ok(table)
    }
}
