//! `mapwire sim vopr`: new seeds for a time, up to the first that fails.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use mapwire_sim::vopr::{Kind, Wants, of_turn};
use mapwire_sim::{Coverage, Interrupt};

use super::{DrawArgs, SimError, Workload, coverage, new_seed, run, seed};

const PROGRESS: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct VoprArgs {
    /// For how long
    #[arg(long, value_name = "M", value_parser = minutes, allow_negative_numbers = true)]
    minutes: f64,
    /// The first seed; the others follow it (default: a new one)
    #[arg(long, value_name = "S", value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    #[command(flatten)]
    draw: DrawArgs,
    /// JSON: an object for the run, and one for each rule and condition; of a seed that fails those of `sim run`
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (0.0..=100_000.0).contains(number))
        .ok_or_else(|| "expected a number of minutes from 0 to 100,000".to_owned())
}

/// What the seeds are drawn by in turn: all kinds of run, unless the arguments name one, or are of one only.
fn kinds(draw: &DrawArgs) -> Result<Vec<Wants>, SimError> {
    let is_mixed = draw.workload.is_none()
        && draw.trace.is_none()
        && draw.calls.is_none()
        && draw.bug.is_none()
        && draw.nodes.is_none_or(|nodes| mapwire_sim::vopr::NODES.contains(&nodes));
    match is_mixed {
        true => Kind::ALL.into_iter().map(|kind| draw.wanted(kind)).collect(),
        false => Ok(vec![draw.wanted(draw.workload.unwrap_or(Workload::Calls).kind())?]),
    }
}

pub(crate) fn command(args: &VoprArgs) -> Result<ExitCode, SimError> {
    let draw = &args.draw;
    let kinds = kinds(draw)?;
    let first = args.seed.unwrap_or_else(new_seed);
    let say = |text: String| if args.json { eprintln!("{text}") } else { println!("{text}") };
    say(format!("first seed {first}, rules {}", draw.rules));
    let start = Instant::now();
    let end = Duration::from_secs_f64(args.minutes * 60.0);
    // A seed that takes longer than what is left is ended on its way.
    let interrupt = Interrupt::new(move || start.elapsed() >= end);
    let (mut seeds, mut packets) = (0u64, 0u64);
    let mut sum = Coverage::default();
    let mut shown = Duration::ZERO;
    let tell = |seeds: u64, packets: u64, last: u64| {
        let seconds = start.elapsed().as_secs_f64().max(1e-9);
        let rate = seeds as f64 / seconds;
        let digits = if rate < 10.0 { 2 } else { 0 };
        say(format!(
            "{seeds} seeds up to {last} in {seconds:.1} s: {rate:.digits$} seeds/s, {:.0} packets/s",
            packets as f64 / seconds
        ));
    };
    loop {
        let seed = first.wrapping_add(seeds);
        let wants = of_turn(&kinds, seeds);
        let ran = wants.0.run(&wants.1, seed, &interrupt)?;
        seeds += u64::from(ran.is_whole);
        packets += ran.packets;
        sum.add(&ran.coverage);
        if ran.violation.is_some() {
            tell(seeds, packets, seed);
            return run::show(wants, seed, draw, args.json);
        }
        let passed = start.elapsed();
        if passed >= end {
            tell(seeds, packets, seed);
            if !ran.is_whole {
                say(format!("seed {seed} was ended on its way, as the time was over"));
            }
            let ran = coverage::Ran { first, seeds, packets, seconds: passed.as_secs_f64() };
            match args.json {
                true => coverage::rows(&ran, &kinds, &sum),
                false => {
                    coverage::show(seeds, &kinds, &sum);
                    println!("no violation");
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        if passed >= shown + PROGRESS {
            shown = passed;
            tell(seeds, packets, seed);
        }
    }
}
