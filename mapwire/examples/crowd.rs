//! Many ranks: each joins, opens the shared memory, counts once under a lock, and closes:
//! `mapwire run -n 256 -- target/debug/examples/crowd`

use mapwire::{Node, Shared};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let node = Node::join()?;
    let joined = begin.elapsed();
    let shared = Shared::open(&node, 1)?;
    let opened = begin.elapsed();
    let counter = match node.rank() {
        0 => Some(shared.alloc::<u64>(1)?),
        _ => None,
    };
    let counter = shared.broadcast_slice(0, counter)?;
    {
        let _held = shared.lock(0)?;
        counter.set(0, counter.get(0) + 1);
    }
    shared.barrier()?;
    let counted = begin.elapsed();
    assert_eq!(counter.get(0), node.size() as u64);
    shared.close()?;
    if node.rank() == 0 {
        println!(
            "{} ranks: joined {joined:.1?}, opened {opened:.1?}, counted {counted:.1?}, closed {:.1?}",
            node.size(),
            begin.elapsed()
        );
    }
    Ok(())
}
