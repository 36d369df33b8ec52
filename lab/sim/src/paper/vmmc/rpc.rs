//! Remote procedure calls (§5.4).

use super::bench::Rpc;
use super::tables::Tables;
use crate::computers::ComputersError;
use crate::hardware::{Cost, US};
use crate::paper::numbers::{about, mb_s, one_decimal, us, whole};
use crate::paper::{Cell, Role, Table};

use Role::Predicted;

/// A call without arguments, as SunRPC encodes it with the least credentials, and its answer (RFC 1057 §8).
const CALL_BYTES: u64 = 40;
const ANSWER_BYTES: u64 = 24;

/// What the library takes on both sides: SHRIMP's 33 us a call (§5.4), without two of its messages of 7 us (§6).
const SOFTWARE_PS: u64 = (33 - 2 * 7) * US;

/// Bytes of a call whose bandwidth is measured.
const LARGE_BYTES: u64 = 1 << 20;

impl Tables {
    fn rpc_of(controls: u8) -> Rpc {
        Rpc { call_bytes: CALL_BYTES, answer_bytes: ANSWER_BYTES, software_ps: SOFTWARE_PS, controls }
    }

    pub(super) fn rpc(&self) -> Result<Table, ComputersError> {
        let keys = ["messages of a call"];
        let columns = ["null call, us", "bandwidth, MB/s"];
        let caption = "vRPC: a call that does nothing, and one with 1 MB of arguments";
        let mut table = Table::new("§5.4", caption, "", &keys, &columns);
        let mut ours = Vec::new();
        for controls in 0..3 {
            let rpc = Self::rpc_of(controls);
            let null = us(self.0.call(rpc)?);
            let call_bytes = LARGE_BYTES;
            let large_ps = self.0.call(Rpc { call_bytes, ..rpc })?;
            ours.push((null, mb_s(LARGE_BYTES, large_ps)));
        }
        let (null, bandwidth) = ours[0];
        table.row(
            &["call and answer"],
            vec![Cell::beside(null, whole(66), Predicted), Cell::beside(bandwidth, about(32_500), Predicted)],
        );
        for (name, (null, bandwidth)) in
            [("and, behind each, how much is written", ours[1]), ("and how much has been read", ours[2])]
        {
            table.row(&[name], vec![Cell::new(null), Cell::new(bandwidth)]);
        }
        table.note("The text gives 32-33 MB/s; the middle stands here. bcopy is input: the most of its 20-50 MB/s, as this is a maximum, and a call is copied once where it comes.");
        let slow = 50_000;
        let slower = self.with(self.profile().clone().with(Cost::HostCopyByte, slow));
        let call_bytes = LARGE_BYTES;
        let slow_ps = slower.0.call(Rpc { call_bytes, ..Self::rpc_of(0) })?;
        let slow = mb_s(LARGE_BYTES, slow_ps);
        table.note(&format!("At bcopy's 20 MB/s the bandwidth would be {} MB/s.", one_decimal(slow)));
        let rest = 66_000 - null;
        table.note(&format!(
            "What the library takes (19 us) is derived from SHRIMP, whose call takes 33 us with messages of 7 us. A null call of two messages is then {} us below the paper's. vRPC was tuned for SHRIMP (§5.4). We suppose that its sides also tell each other how much is written and read: words that SHRIMP's automatic update stores into the peer's memory at next to no cost, and that are sends of their own here. With both words the call takes {} us.",
            one_decimal(rest),
            one_decimal(ours[2].0)
        ));
        Ok(table)
    }
}
