//! Programs of more ranks than processors: each way to wait in turn, and `adaptive` beside the better of the others.

use std::hint::black_box;

use mapwire::SharedSlice;

use super::*;

/// Programs: all ranks spin on shared words, each computes while it owns what the others want, or they take tasks from a
/// queue and spin while it is empty.
const KINDS: [&str; 3] = ["spin", "own", "queue"];
const WAITS: [&str; 3] = ["poll", "event", "adaptive"];
type Statistic = fn(&mut [f64]) -> f64;
const STATISTICS: [(&str, Statistic); 3] =
    [("median", |taken| median(taken)), ("mean", |taken| mean(taken)), ("p90", p90)];

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn p90(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    quantile(times, 0.9)
}

/// A rank ends after so long, where its way to wait takes for ever.
const LIMIT: Duration = Duration::from_secs(1);
/// Tasks of a batch, and how long each computes.
const TASKS: u64 = 64;
const TASK: Duration = Duration::from_micros(50);

/// Runs the programs and reports the figures. Where the scheduler first puts the ranks halves or doubles what a program
/// takes, so each starts often, the ways to wait in turn, and a figure is the mean of all starts.
pub(super) fn compare(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let starts = if plan.quick { 1 } else { 24 };
    for kind in KINDS {
        let mut taken = [(); 3].map(|()| Vec::new());
        for _ in 0..starts {
            for (wait, taken) in WAITS.into_iter().zip(&mut taken) {
                let job =
                    Job { bench: "waiting", ranks: CROWD, options: &["--wait", wait], case: &format!("{kind} {wait}") };
                taken.push(parse(&job.output(plan)?)?);
            }
        }
        for (statistic, of) in STATISTICS {
            let [poll, event, adaptive] = taken.each_ref().map(|starts| {
                let of_starts = starts.iter().map(|start| of(&mut start.clone()));
                of_starts.collect::<Vec<_>>()
            });
            let (value, baseline) = (mean(&adaptive), mean(&poll).min(mean(&event)));
            let case = [
                ("case", json!(format!("{kind}, {statistic}"))),
                ("ranks", json!(CROWD)),
                ("wait", json!("adaptive")),
                ("transport", json!("shm")),
            ];
            let figure = Figure {
                value,
                baseline,
                ratio: value / baseline,
                min: adaptive.iter().copied().fold(f64::INFINITY, f64::min),
                max: adaptive.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                runs: starts,
                dropped: 0,
                placement: (Placement::Unknown, None),
            };
            report.rows(&case, "us", "better of poll and event", &[figure]);
        }
    }
    Ok(())
}

fn parse(text: &str) -> Result<Vec<f64>, BenchError> {
    let taken: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    match taken {
        Ok(taken) if !taken.is_empty() => Ok(taken),
        _ => Err(format!("the ranks printed `{text}`").into()),
    }
}

/// What a rank does; rank 0 prints what each of its operations took, in microseconds.
pub(super) fn run(node: &Node, shared: &Shared, kind: &str) -> Result<(), BenchError> {
    let times = match kind {
        "own" => 16_000,
        _ => 64,
    };
    let mut words: Vec<SharedSlice<u64>> = Vec::new();
    for root in 0..=node.size() {
        let root = root % node.size();
        let mine = (root == node.rank()).then(|| shared.alloc::<u64>(8)).transpose()?;
        words.push(shared.broadcast_slice(root, mine)?);
    }
    shared.barrier()?;
    let program = Program { me: node.rank(), size: node.size(), shared, words: &words, times };
    let taken = match kind {
        "spin" => program.spin(),
        "own" => program.own(),
        _ => program.queue()?,
    };
    if node.rank() == 0 {
        let words: Vec<String> = taken.iter().map(f64::to_string).collect();
        println!("{}", words.join(" "));
    }
    Ok(())
}

struct Program<'a> {
    me: usize,
    size: usize,
    shared: &'a Shared,
    /// One of each rank, and one more.
    words: &'a [SharedSlice<u64>],
    times: u64,
}

impl Program<'_> {
    /// A turn that goes round: each rank spins on a word of its own until the one before it stores there.
    fn spin(&self) -> Vec<f64> {
        let (mine, next) = (self.words[self.me], self.words[(self.me + 1) % self.size]);
        let begun = Instant::now();
        let mut taken = Vec::new();
        for turn in 1..=self.times {
            let start = Instant::now();
            if self.me == 0 {
                let over = turn == self.times || begun.elapsed() > LIMIT;
                next.set(0, if over { u64::MAX } else { turn });
            }
            let mut seen = mine.get(0);
            while seen < turn {
                std::hint::spin_loop();
                seen = mine.get(0);
            }
            if self.me != 0 {
                next.set(0, seen);
            }
            taken.push(start.elapsed().as_nanos() as f64 / 1000.0);
            if seen == u64::MAX {
                break;
            }
        }
        taken
    }

    /// Every rank computes, and now and then stores to a word that it shares with the others. Of these stores, those count for
    /// which it was another's.
    fn own(&self) -> Vec<f64> {
        let begun = Instant::now();
        let mut taken = Vec::new();
        for turn in 0..self.times {
            compute(TASK);
            let theirs = self.words[(self.me + 1 + turn as usize % (self.size - 1)) % self.size];
            let faults = self.shared.counters().write_faults;
            let start = Instant::now();
            theirs.set(1, turn);
            let elapsed = start.elapsed();
            if self.shared.counters().write_faults > faults {
                taken.push(elapsed.as_nanos() as f64 / 1000.0);
            }
            if begun.elapsed() > LIMIT {
                break;
            }
        }
        taken
    }

    /// Batches of tasks in a queue behind a lock; who finds it empty spins on the number of the batch.
    fn queue(&self) -> Result<Vec<f64>, BenchError> {
        // Tasks left, tasks done; and the number of the batch, on its own.
        let (queue, batch) = (self.words[0], self.words[self.size]);
        let begun = Instant::now();
        let mut taken = Vec::new();
        for number in 1..=self.times {
            let start = Instant::now();
            if self.me == 0 {
                let over = number == self.times || begun.elapsed() > LIMIT;
                let _held = self.shared.lock(1)?;
                queue.set(0, TASKS);
                queue.set(1, 0);
                batch.set(0, if over { u64::MAX } else { number });
            }
            let mut seen = batch.get(0);
            while seen < number {
                std::hint::spin_loop();
                seen = batch.get(0);
            }
            loop {
                let left = {
                    let _held = self.shared.lock(1)?;
                    let left = queue.get(0);
                    queue.set(0, left.saturating_sub(1));
                    left
                };
                if left == 0 {
                    break;
                }
                compute(TASK);
                let _held = self.shared.lock(1)?;
                queue.set(1, queue.get(1) + 1);
            }
            while self.me == 0 && queue.get(1) < TASKS {
                std::hint::spin_loop();
            }
            taken.push(start.elapsed().as_nanos() as f64 / 1000.0);
            if seen == u64::MAX {
                break;
            }
        }
        Ok(taken)
    }
}

/// Keeps the processor busy with a fixed amount of work, of about `time` where nothing disturbs it.
fn compute(time: Duration) {
    let mut x = 1_u64;
    for _ in 0..time.as_nanos() as u64 / 2 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(x);
}
