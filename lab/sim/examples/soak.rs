use mapwire_sim::vopr::Wants;
use mapwire_sim::*;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rules = parse_rules("all").unwrap();
    let wants = match args[1].as_str() {
        "calls" => Wants::Calls(Box::new(scenario::Wanted {
            rules,
            ..Default::default()
        })),
        "shared" => Wants::Shared(shared::SharedWanted {
            rules,
            ..Default::default()
        }),
        "lossless-shared" => Wants::Shared(shared::SharedWanted {
            rules: parse_rules("delay,partition,path,pause,slow,refuse-pins").unwrap(),
            ..Default::default()
        }),
        "litmus" => Wants::Shared(shared::SharedWanted {
            rules,
            litmus: true,
            ..Default::default()
        }),
        "global" => Wants::Global(global::GlobalWanted {
            rules,
            ..Default::default()
        }),
        _ => Wants::Rpc(rpc::RpcWanted {
            rules,
            ..Default::default()
        }),
    };
    let (first, count): (u64, u64) = (args[2].parse().unwrap(), args[3].parse().unwrap());
    let most: u64 = args.get(4).map_or(3, |n| n.parse().unwrap());
    let start = Instant::now();
    let mut sum = Coverage::default();
    let mut bad = 0;
    let mut longest = (0.0, 0);
    for seed in first..first + count {
        let t = Instant::now();
        let ran = std::panic::catch_unwind(|| wants.run(seed, &Interrupt::default()).unwrap());
        let t = t.elapsed().as_secs_f64();
        if t > longest.0 {
            longest = (t, seed);
        }
        let Ok(ran) = ran else {
            println!(
                "PANIC seed {seed} after {:.1}s",
                start.elapsed().as_secs_f64()
            );
            bad += 1;
            if bad >= most {
                break;
            }
            continue;
        };
        sum.add(&ran.coverage);
        if let Some(v) = ran.violation {
            println!(
                "seed {seed} after {:.1}s ({} seeds): {v:?}",
                start.elapsed().as_secs_f64(),
                seed - first + 1
            );
            bad += 1;
            if bad >= most {
                break;
            }
        }
    }
    println!(
        "{} bad, {:.1} seeds/s, longest {longest:?}",
        bad,
        count as f64 / start.elapsed().as_secs_f64()
    );
    if args.len() > 5 {
        for r in RULES {
            println!("{} {:?}", r.name, sum.of_rule(r.name));
        }
        for c in Condition::ALL {
            if wants.has(*c) {
                println!("{:>9} {:?}: {}", sum.of(*c), c.about().0, c.about().1);
            }
        }
    }
}
