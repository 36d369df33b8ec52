//! What each operation of the page directory takes its node.

use mapwire_wire::NodeId;

use super::bench::C;
use super::tables::Tables;
use crate::directory::{Call, HostLoad, MachineError, Placement};
use crate::paper::Table;
use crate::paper::numbers::us;

impl Tables {
    /// Getpage, putpage and discardpage at the directory node.
    pub(super) fn operations(&self) -> Result<Table, MachineError> {
        let columns = ["NP", "HP", "interrupts"];
        let keys = ["system", "operation"];
        let caption =
            "time of the idle directory node that an operation takes, answers and changes of the table included";
        let mut table = Table::new("Operations", caption, "us", &keys, &columns);
        let operations = [
            ("getpage, taken", Call::Take, true),
            ("getpage, shared", Call::Read, true),
            ("getpage, absent", Call::Take, false),
            ("putpage", Call::Put(NodeId(C)), false),
            ("discardpage", Call::Discard, true),
        ];
        for placement in Placement::ALL {
            let bench = self.bench(placement, HostLoad::Idle);
            for (name, call, is_there) in operations {
                let load = bench.operation(call, is_there)?;
                let interrupts = 1000 * load.interrupts as i64;
                let cells = [us(load.nic_ps), us(load.host_ps), interrupts];
                table.row(&[placement.name(), name], cells);
            }
        }
        table.note("A shared page's entry does not change. Putpage is the storing node's report, as the directory is to name only what is stored. Discardpage tells the storing node, then the program.");
        Ok(table)
    }
}
