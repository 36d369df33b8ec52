//! Every rank exports an inbox and stores a greeting into that of the next rank:
//! `mapwire run -n 4 -- target/debug/examples/messages`

use mapwire::{Node, Rights};

fn main() -> Result<(), mapwire::Error> {
    let node = Node::join()?;
    if node.size() == 1 {
        eprintln!("one rank has nobody to greet; start several: mapwire run -n 4 -- PROGRAM");
        std::process::exit(2);
    }
    let next = (node.rank() + 1) % node.size();

    // Others may store here, and map it: then a store needs no help of this process.
    let buffer = node.alloc(4096)?;
    let export = node.export_buffer(&buffer).name("inbox").start()?;

    // Waits until the next rank has exported its own.
    let inbox = node.import(next, "inbox").rights(Rights::ALL).start()?;
    let greeting = format!("greetings from rank {}", node.rank());
    // The text at byte 64, then its length as a signal at byte 0: whoever sees the signal sees the text.
    inbox.put_signal(greeting.as_bytes(), 64, 0, greeting.len() as u64)?;

    let length = export.wait_signal(0, 1)?;
    let mut text = vec![0; length as usize];
    buffer.read(64, &mut text)?;
    println!("{}", String::from_utf8_lossy(&text));
    Ok(())
}
