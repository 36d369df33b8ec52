//! Ranks draw the rows of a picture, each the next that nobody has begun, until all are there:
//! `mapwire run -n 4 -- target/debug/examples/work_queue`

use mapwire::{Awaited, Node, Rights};

const WIDTH: usize = 1024;
const HEIGHT: usize = 256;

// The picture's memory in rank 0: the number of the next row, a signal and a count for each rank, then the rows.
const NEXT: u64 = 0;
const SIGNALS: u64 = 64;
const COUNTS: u64 = SIGNALS + 8 * 1024;
const ROWS: u64 = COUNTS + 8 * 1024;

fn main() -> Result<(), mapwire::Error> {
    let node = Node::join()?;
    if node.size() == 1 {
        eprintln!("one rank has nobody to draw for it; start several: mapwire run -n 4 -- PROGRAM");
        std::process::exit(2);
    }
    match node.rank() {
        0 => collect(&node),
        rank => draw(&node, rank as u64),
    }
}

fn draw(node: &Node, rank: u64) -> Result<(), mapwire::Error> {
    let picture = node.import(0, "picture").rights(Rights::ALL).start()?;
    let (mut drawn, mut last) = (0_u64, None);
    loop {
        // Of all ranks that draw one gets this number.
        let row = picture.fetch_add_u64(NEXT, 1)?;
        if row >= HEIGHT as u64 {
            break;
        }
        let points: Vec<u8> = (0..WIDTH).map(|column| escape(column, row as usize)).collect();
        // It leaves while the next row is drawn; the memory comes back from `wait`.
        let sent = picture.send_async(points, ROWS + row * WIDTH as u64)?;
        if let Some(before) = last.replace(sent) {
            mapwire::Request::wait(before)?;
        }
        drawn += 1;
    }
    if let Some(sent) = last {
        sent.wait()?;
    }
    // Behind all the rows.
    picture.put_signal(&drawn.to_le_bytes(), COUNTS + 8 * rank, SIGNALS + 8 * rank, 1)
}

fn collect(node: &Node) -> Result<(), mapwire::Error> {
    let memory = node.alloc(ROWS as usize + WIDTH * HEIGHT)?;
    let picture = node.export_buffer(&memory).name("picture").start()?;
    let signal_of = |rank| Awaited { export: &picture, offset: SIGNALS + 8 * rank, value: 1 };
    let mut working: Vec<Awaited> = (1..node.size() as u64).map(signal_of).collect();
    let mut drawn = 0;
    while !working.is_empty() {
        // Whichever rank ends first.
        if let Some(ended) = node.wait_any(&working, None)? {
            let rank = (working.swap_remove(ended).offset - SIGNALS) / 8;
            drawn += memory.load_u64((COUNTS + 8 * rank) as usize)?;
        }
    }
    let mut points = vec![0; WIDTH * HEIGHT];
    memory.read(ROWS as usize, &mut points)?;
    let inside = points.iter().filter(|steps| **steps == u8::MAX).count();
    println!("{drawn} rows drawn; {inside} of {} points stay", points.len());
    Ok(())
}

/// How many steps a point takes to leave the Mandelbrot set, 255 if it stays.
fn escape(column: usize, row: usize) -> u8 {
    let (x, y) = (3.0 * column as f64 / WIDTH as f64 - 2.0, 2.0 * row as f64 / HEIGHT as f64 - 1.0);
    let (mut a, mut b, mut steps) = (x, y, 0);
    while a * a + b * b < 4.0 && steps < u8::MAX {
        (a, b) = (a * a - b * b + x, 2.0 * a * b + y);
        steps += 1;
    }
    steps
}
