//! How the property tests of this crate are run, and the traces that its tests make up.

use mapwire_trace::Block;
use mapwire_wire::TraceOp;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// The same cases in every run; `PROPTEST_RNG_SEED` chooses others, `PROPTEST_CASES` more.
pub(crate) fn seeded() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0x0055_544c_4231_3938);
    }
    config.failure_persistence = None;
    config
}

/// Node, process, operation, first page, pages.
pub(crate) type Record = (u16, u16, TraceOp, u64, u64);

/// Sends: node, process, first page, pages.
pub(crate) fn sends(records: &[(u16, u16, u64, u64)]) -> Vec<Record> {
    let send = |&(node, process, page, count): &(u16, u16, u64, u64)| (node, process, TraceOp::Send, page, count);
    records.iter().map(send).collect()
}

/// Has the records taken, in two blocks.
pub(crate) fn blocks<E>(records: &[Record], mut take: impl FnMut(&Block<'_>) -> Result<(), E>) -> Result<(), E> {
    let (first, second) = records.split_at(records.len() / 2);
    for part in [first, second] {
        let (time, flags) = (vec![0; part.len()], vec![0; part.len()]);
        let node: Vec<u16> = part.iter().map(|it| it.0).collect();
        let process: Vec<u16> = part.iter().map(|it| it.1).collect();
        let op: Vec<u8> = part.iter().map(|it| it.2 as u8).collect();
        let address: Vec<u64> = part.iter().map(|it| it.3 << 12).collect();
        let bytes: Vec<u64> = part.iter().map(|it| it.4 << 12).collect();
        take(&Block {
            time_ns: &time,
            node: &node,
            process: &process,
            op: &op,
            flags: &flags,
            address: &address,
            bytes: &bytes,
        })?;
    }
    Ok(())
}
