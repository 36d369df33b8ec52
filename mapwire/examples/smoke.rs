//! Tries every path once: a direct and a ring export, signals, a fetch, a notification, and shared memory.

use mapwire::{Node, Rights, Shared};
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::join()?;
    let me = node.rank();
    eprintln!("joined {me} of {}", node.size());
    if node.size() > 1 {
        if me == 0 {
            let buffer = node.alloc(1 << 20)?;
            let export = node.export_buffer(&buffer).name("inbox").start()?;
            let ring = node.alloc(1 << 20)?;
            let ring_export = node
                .export_buffer(&ring)
                .ring_only()
                .name("ring")
                .on_notify(|n| eprintln!("notified {n:?}"))
                .start()?;
            export.wait_signal(0, 1)?;
            println!("direct: {}", buffer.load_u64(8)?);
            ring_export.wait_signal(0, 7)?;
            println!("ring: {}", ring.load_u64(8)?);
            ring_export.wait_signal(0, 8)?;
            let mut b = vec![0; 100_000];
            ring.read(5000, &mut b)?;
            println!("long ok {}", b.iter().enumerate().all(|(i, &x)| x == (i % 251) as u8));
            ring_export.wait_signal(0, 9)?;
        } else if me == 1 {
            let inbox = node.import(0, "inbox").rights(Rights::STORE).start()?;
            println!("direct: {}", inbox.is_direct());
            inbox.put_signal(&42_u64.to_le_bytes(), 8, 0, 1)?;
            let ring = node.import(0, "ring").rights(Rights::ALL).start()?;
            println!("direct: {}", ring.is_direct());
            ring.put_signal(&43_u64.to_le_bytes(), 8, 0, 7)?;
            let data: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
            ring.put_signal(&data, 5000, 0, 8)?;
            let mut back = vec![0; 100_000];
            ring.fetch(5000, &mut back)?;
            println!("fetch ok {}", back == data);
            ring.send_notify(&[0; 300], 16)?;
            ring.put_signal(&[], 0, 0, 9)?;
        }
    }
    let shared = Shared::open(&node, 1)?;
    let slice = if me == 0 { Some(shared.alloc::<u64>(1000)?) } else { None };
    let slice = shared.broadcast_slice(0, slice)?;
    for i in 0..100 {
        let g = shared.lock(3)?;
        slice.set(0, slice.get(0) + 1);
        slice.set(i + 1, i as u64);
        drop(g);
    }
    shared.barrier()?;
    println!("rank {me}: {} {} {:?}", slice.get(0), slice.get(100), shared.counters());
    shared.close()?;
    Ok(())
}
