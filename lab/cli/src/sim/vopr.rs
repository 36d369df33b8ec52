//! `mapwire sim vopr`: new seeds for a time, up to the first that fails.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use mapwire_sim::Scenario;
use mapwire_sim::global::{GlobalScenario, NODES};
use mapwire_sim::rpc::RpcScenario;
use mapwire_sim::shared::SharedScenario;

use super::{DrawArgs, SimError, Wants, Workload, new_seed, run, seed};

/// One of so many seeds is a run of global memory, unless a workload is named.
const GLOBAL_OF: u64 = 4;
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
    let draw = &args.draw;
    let is_mixed = draw.workload.is_none()
        && draw.trace.is_none()
        && draw.calls.is_none()
        && draw.bug.is_none()
        && draw.nodes.is_none_or(|nodes| NODES.contains(&nodes));
    let most = draw.wanted(draw.workload.unwrap_or(Workload::Calls))?;
    let some = match is_mixed {
        true => Some(draw.wanted(Workload::Global)?),
        false => None,
    };
    let first = args.seed.unwrap_or_else(new_seed);
    println!("first seed {first}, rules {}", draw.rules);
    let start = Instant::now();
    let end = Duration::from_secs_f64(args.minutes * 60.0);
    let (mut seeds, mut packets) = (0u64, 0u64);
    let mut shown = Duration::ZERO;
    let tell = |seeds: u64, packets: u64, last: u64| {
        let seconds = start.elapsed().as_secs_f64().max(1e-9);
        let rate = seeds as f64 / seconds;
        let digits = if rate < 10.0 { 2 } else { 0 };
        println!(
            "{seeds} seeds up to {last} in {seconds:.1} s: {rate:.digits$} seeds/s, {:.0} packets/s",
            packets as f64 / seconds
        );
    };
    loop {
        let seed = first.wrapping_add(seeds);
        let wants = some
            .as_ref()
            .filter(|_| seeds % GLOBAL_OF == GLOBAL_OF - 1)
            .unwrap_or(&most);
        let (has_failed, delivered) = match wants {
            Wants::Calls(wanted) => {
                let outcome = Scenario::draw(seed, wanted)?.run()?;
                (outcome.violation.is_some(), outcome.packets)
            }
            Wants::Shared(wanted) => {
                let outcome = SharedScenario::draw(seed, wanted).run()?;
                (outcome.violation.is_some(), outcome.packets)
            }
            Wants::Global(wanted) => {
                let outcome = GlobalScenario::draw(seed, wanted).run()?;
                (outcome.violation.is_some(), outcome.packets)
            }
            Wants::Rpc(wanted) => {
                let outcome = RpcScenario::draw(seed, wanted).run()?;
                (outcome.violation.is_some(), outcome.packets)
            }
        };
        seeds += 1;
        packets += delivered;
        if has_failed {
            tell(seeds, packets, seed);
            return run::show(wants, seed, draw, false);
        }
        let passed = start.elapsed();
        if passed >= end {
            tell(seeds, packets, seed);
            println!("no violation");
            return Ok(ExitCode::SUCCESS);
        }
        if passed >= shown + PROGRESS {
            shown = passed;
            tell(seeds, packets, seed);
        }
    }
}
