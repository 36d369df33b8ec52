//! Programs of more ranks than processors: each way to wait in turn, and `adaptive` beside the better of the others.

use std::hint::black_box;

use mapwire::SharedSlice;

use super::*;

/// What the ranks do: all spin on shared words, each computes while it owns what the others want, or they take tasks from a
/// queue and spin while it is empty.
const KINDS: [&str; 3] = ["spin", "own", "queue"];
const WAITS: [&str; 3] = ["poll", "event", "adaptive"];
const STATISTICS: [&str; 3] = ["median", "mean", "p90"];

/// A rank ends after so long, where its way to wait takes for ever.
const LIMIT: Duration = Duration::from_secs(3);
/// Tasks of a batch, and how long each computes.
const TASKS: u64 = 64;
const TASK: Duration = Duration::from_micros(50);

/// Runs the programs and reports the figures.
pub(super) fn compare(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let rounds = if plan.quick { 1 } else { 7 };
    for kind in KINDS {
        let mut pairs = [(); 3].map(|()| Vec::new());
        for _ in 0..rounds {
            let mut figures = [[0.0; 3]; 3];
            for (wait, figures) in WAITS.into_iter().zip(&mut figures) {
                let job = Job {
                    bench: "waiting",
                    ranks: CROWD,
                    options: &["--wait", wait],
                    case: &format!("{kind} {wait}"),
                };
                *figures = parse(&job.output(plan)?)?;
            }
            let [poll, event, adaptive] = figures;
            for (index, pairs) in pairs.iter_mut().enumerate() {
                pairs.push((adaptive[index], poll[index].min(event[index])));
            }
        }
        for (statistic, pairs) in STATISTICS.into_iter().zip(&pairs) {
            let case = vec![
                ("case", json!(format!("{kind}, {statistic}"))),
                ("ranks", json!(CROWD)),
                ("wait", json!("adaptive")),
                ("transport", json!("shm")),
            ];
            let baseline = "better of poll and event";
            report.row(&Row::of(case, "us", baseline, &Figure::of_pairs(pairs)));
        }
    }
    Ok(())
}

fn parse(text: &str) -> Result<[f64; 3], BenchError> {
    let figures: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    figures?
        .try_into()
        .map_err(|_| format!("the ranks printed `{text}`").into())
}

/// What a rank does; rank 0 prints median, mean and 90th percentile of its operations in microseconds.
pub(super) fn run(node: &Node, shared: &Shared, kind: &str, plan: Plan) -> Result<(), BenchError> {
    let times = if plan.quick { 50 } else { 300 };
    let mut words: Vec<SharedSlice<u64>> = Vec::new();
    for root in 0..=node.size() {
        let root = root % node.size();
        let mine = (root == node.rank())
            .then(|| shared.alloc::<u64>(8))
            .transpose()?;
        words.push(shared.broadcast_slice(root, mine)?);
    }
    shared.barrier()?;
    let program = Program {
        me: node.rank(),
        size: node.size(),
        shared,
        words: &words,
        times,
    };
    let mut taken = match kind {
        "spin" => program.spin(),
        "own" => program.own(),
        _ => program.queue()?,
    };
    if node.rank() == 0 {
        println!(
            "{} {} {}",
            median(&mut taken),
            mean(&taken),
            quantile(&mut taken, 0.9)
        );
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

    /// Every rank computes, and now and then stores to a word that another owns, which computes as well.
    fn own(&self) -> Vec<f64> {
        let begun = Instant::now();
        let mut taken = Vec::new();
        for turn in 0..self.times {
            compute(TASK);
            let theirs = self.words[(self.me + 1 + turn as usize % (self.size - 1)) % self.size];
            let start = Instant::now();
            theirs.set(1, turn);
            taken.push(start.elapsed().as_nanos() as f64 / 1000.0);
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
        let batches = self.times / 6;
        for number in 1..=batches {
            let start = Instant::now();
            if self.me == 0 {
                let over = number == batches || begun.elapsed() > LIMIT;
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
