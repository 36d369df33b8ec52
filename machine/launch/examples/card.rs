//! Puts a card, waits for all ranks, and prints theirs: a check of what started it.
//!
//! ```sh
//! cargo build -p mapwire-launch --example card
//! mpirun -n 4 target/debug/examples/card
//! srun -n 4 --mpi=pmi2 target/debug/examples/card
//! ```
//!
//! `card BYTES` puts that many bytes besides the text. `card fail RANK` makes that rank end with exit code 7 after the fence,
//! and all others wait for the news. `card abort RANK` makes it abort the job. `card missing RANK` keeps it from the fence.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use mapwire_launch::{LaunchError, Launcher, detect};

const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("card: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, LaunchError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(detected) = detect()? else {
        println!("no launcher");
        return Ok(ExitCode::SUCCESS);
    };
    let mut launcher = detected.join(TIMEOUT)?;
    let (rank, size) = (launcher.rank(), launcher.size());
    let is_me = |text: &str| text.parse() == Ok(rank);
    let more = match arguments[..] {
        [bytes] => bytes.parse().unwrap_or(0),
        ["missing", who] if is_me(who) => {
            std::thread::sleep(Duration::from_secs(5));
            return Ok(ExitCode::SUCCESS);
        }
        _ => 0,
    };
    let card = |rank: u32| {
        let mut card = format!("card of {rank}").into_bytes();
        card.extend((0..more).map(|at| (at * 7 + rank as usize) as u8));
        card
    };
    launcher.put("card", &card(rank))?;
    let limit = if let ["missing", _] = arguments[..] { Duration::from_secs(1) } else { TIMEOUT };
    launcher.fence(limit)?;
    let mut seen = 0;
    for peer in 0..size {
        let got = launcher.get(peer, "card", TIMEOUT)?;
        if got.as_deref() != Some(&card(peer)[..]) {
            println!("rank {rank}: the card of {peer} is {got:?}");
            return Ok(ExitCode::FAILURE);
        }
        seen += 1;
    }
    if launcher.get(rank, "nothing", Duration::from_secs(2))?.is_some() {
        println!("rank {rank}: a value that nobody put");
        return Ok(ExitCode::FAILURE);
    }
    println!("rank {rank} of {size} by {}: {seen} cards", launcher.protocol(),);
    match arguments[..] {
        ["fail", who] if is_me(who) => return Ok(ExitCode::from(7)),
        ["fail", _] => wait_for_news(&mut *launcher),
        ["abort", who] if is_me(who) => launcher.abort(23, "card aborts")?,
        ["abort", _] => wait_for_news(&mut *launcher),
        _ => {}
    }
    launcher.fence(TIMEOUT)?;
    launcher.finish(TIMEOUT)?;
    Ok(ExitCode::SUCCESS)
}

fn wait_for_news(launcher: &mut dyn Launcher) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        if let Some(event) = launcher.poll_event() {
            println!("rank {} hears: {event:?}", launcher.rank());
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("rank {} hears nothing", launcher.rank());
}
