//! `mapwire sim vopr`: new seeds for a time, up to the first that fails.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use mapwire_sim::Scenario;
use mapwire_sim::shrink::shrink;

use super::{DrawArgs, SimError, new_seed, run, seed};

/// Runs that shrinking takes at most.
const SHRINK_RUNS: u32 = 5_000;
/// How often progress is shown.
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
}

fn minutes(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (0.0..=100_000.0).contains(number))
        .ok_or_else(|| "expected a number of minutes from 0 to 100,000".to_owned())
}

/// `mapwire sim vopr`.
pub(crate) fn command(args: &VoprArgs) -> Result<ExitCode, SimError> {
    let wanted = args.draw.wanted()?;
    let first = args.seed.unwrap_or_else(new_seed);
    println!("first seed {first}, rules {}", args.draw.rules);
    let start = Instant::now();
    let end = Duration::from_secs_f64(args.minutes * 60.0);
    let (mut seeds, mut packets) = (0u64, 0u64);
    let mut shown = Duration::ZERO;
    let tell = |seeds: u64, packets: u64, last: u64| {
        let seconds = start.elapsed().as_secs_f64().max(1e-9);
        println!(
            "{seeds} seeds up to {last} in {seconds:.1} s: {:.0} seeds/s, {:.0} packets/s",
            seeds as f64 / seconds,
            packets as f64 / seconds
        );
    };
    loop {
        let scenario = Scenario::draw(first.wrapping_add(seeds), &wanted)?;
        let outcome = scenario.run()?;
        seeds += 1;
        packets += outcome.packets;
        if outcome.violation.is_some() {
            tell(seeds, packets, scenario.seed);
            println!("{}", scenario.to_string().trim_end());
            let shrunk = shrink(&scenario, SHRINK_RUNS)?;
            run::tell(&scenario, &outcome, shrunk.as_ref(), &args.draw);
            return Ok(ExitCode::FAILURE);
        }
        let passed = start.elapsed();
        if passed >= end {
            tell(seeds, packets, scenario.seed);
            println!("no violation");
            return Ok(ExitCode::SUCCESS);
        }
        if passed >= shown + PROGRESS {
            shown = passed;
            tell(seeds, packets, scenario.seed);
        }
    }
}
