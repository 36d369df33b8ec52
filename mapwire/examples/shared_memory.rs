//! All ranks count in one word of shared memory:
//! `mapwire run -n 4 -- target/debug/examples/shared_memory`

use mapwire::{Node, Shared};

fn main() -> Result<(), mapwire::Error> {
    let node = Node::join()?;
    if node.size() == 1 {
        eprintln!("one rank shares nothing; start several: mapwire run -n 4 -- PROGRAM");
        std::process::exit(2);
    }
    let shared = Shared::open(&node, 1)?;
    let counter = match node.rank() {
        0 => Some(shared.alloc::<u64>(1)?),
        _ => None,
    };
    let counter = shared.broadcast_slice(0, counter)?;

    for _ in 0..1000 {
        let _held = shared.lock(0)?;
        counter.set(0, counter.get(0) + 1);
    }
    shared.barrier()?;
    assert_eq!(counter.get(0), 1000 * node.size() as u64);
    if node.rank() == 0 {
        println!("all ranks have counted to {}", counter.get(0));
    }
    shared.close()
}
