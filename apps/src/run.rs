//! Running a program over a crew: once, timed, checked, or in turn with plain threads.

use std::sync::Mutex;

use crate::crew::{Crew, Mark, Traffic, Worker};
use crate::error::{Failure, show_bytes};
use crate::how::{How, Mode, rank_of_environment};
use crate::program::Program;
use crate::report::{Comparison, Report, Round};

/// Runs `program` with the command line's options. Rank 0 prints; a wrong result is a failure.
pub fn main<P: Program>(program: &P, how: &How) -> Result<(), Failure> {
    how.check()?;
    refuse_too_large(program.shared_bytes(how.threads.unwrap_or(1)))?;
    match how.mode {
        Mode::Auto => {
            let crew = Crew::join(how.threads.unwrap_or(1))?;
            crew.ensure_room(program.shared_bytes(crew.workers()))?;
            match how.against_threads {
                true => against_threads(program, how, &crew)?,
                false => once(program, how, &crew)?,
            }
            crew.leave()
        }
        // These need no job: rank 0 does everything.
        _ if rank_of_environment() != 0 => Ok(()),
        Mode::Sequential => once(program, how, &Crew::plain(1)),
        Mode::Threads => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = how.threads.unwrap_or(processors);
            once(program, how, &Crew::plain(threads))
        }
    }
}

/// Runs once, untimed and unchecked; returns the result in rank 0.
pub fn solve<P: Program>(program: &P, crew: &Crew) -> Result<P::Outcome, Failure> {
    let memory = program.layout(crew)?;
    timed(program, crew, &memory)?;
    Ok(program.collect(&memory))
}

/// How long a run took.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// From a barrier before the problem is put into shared memory to the barrier before the work: the first touches of pages.
    prepare_seconds: f64,
    /// From there to the barrier after the work.
    seconds: f64,
}

/// One run over `memory`, and this rank's traffic during the work.
fn timed<P: Program>(program: &P, crew: &Crew, memory: &P::Memory<'_>) -> Result<(Times, Traffic), Failure> {
    let result = Mutex::new((Times::default(), Traffic::default()));
    crew.run(|worker: &Worker<'_>| {
        worker.barrier()?;
        let begin = Mark::now(crew);
        program.prepare(worker, memory)?;
        worker.barrier()?;
        let start = Mark::now(crew);
        program.work(worker, memory)?;
        worker.barrier()?;
        if worker.leads_its_rank() {
            let ((prepare_seconds, _), (seconds, traffic)) = (begin.until(start), start.until(Mark::now(crew)));
            // A poisoned lock means that another worker panicked, and then `run` does not return.
            *result.lock().expect("no worker panicked") = (Times { prepare_seconds, seconds }, traffic);
        }
        Ok(())
    })?;
    Ok(result.into_inner().expect("no worker panicked"))
}

/// The sequential run: its seconds and its result.
fn sequential<P: Program>(program: &P) -> Result<(f64, P::Outcome), Failure> {
    let crew = Crew::plain(1);
    let memory = program.layout(&crew)?;
    let (times, _) = timed(program, &crew, &memory)?;
    Ok((times.seconds, program.collect(&memory)))
}

/// Runs over `crew`, then sequentially to compare, and reports.
fn once<P: Program>(program: &P, how: &How, crew: &Crew) -> Result<(), Failure> {
    let memory = program.layout(crew)?;
    let (Times { prepare_seconds, seconds }, traffic) = timed(program, crew, &memory)?;
    let traffic = crew.gather(traffic)?;
    crew.alone(|| {
        let outcome = program.collect(&memory);
        let alone = crew.kind() == "sequential";
        let (sequential_seconds, check) = if how.no_check {
            (None, None)
        } else if alone {
            (Some(seconds), Some(program.verify(&outcome)))
        } else {
            let (seconds, expected) = sequential(program)?;
            (Some(seconds), Some(check(program, &outcome, &expected)))
        };
        let report = Report {
            mode: crew.kind(),
            ranks: crew.ranks(),
            threads: crew.threads(),
            prepare_seconds,
            seconds,
            sequential_seconds,
            traffic,
            check: check.as_ref().map(Result::is_ok),
        };
        report.print(program, &outcome, how.json)?;
        check.unwrap_or(Ok(()))
    })?;
    Ok(())
}

fn check<P: Program>(program: &P, outcome: &P::Outcome, expected: &P::Outcome) -> Result<(), Failure> {
    program.verify(outcome)?;
    program.compare(outcome, expected)
}

/// Runs plain threads in rank 0 and the whole crew in turn, threads both before and after each run of the crew, and reports how their
/// speed-ups compare. The threads wait as the ranks do: if those sleep at once, by a barrier of futexes.
fn against_threads<P: Program>(program: &P, how: &How, crew: &Crew) -> Result<(), Failure> {
    let threads = match crew.sleeps() {
        true => Crew::sleeping(crew.workers()),
        false => Crew::plain(crew.workers()),
    };
    let memory = program.layout(crew)?;
    let expected = match how.no_check {
        true => None,
        false => crew.alone(|| sequential(program))?,
    };
    let mut plain_memory = None;
    let mut run_threads = || {
        crew.alone(|| {
            let memory = match &mut plain_memory {
                Some(memory) => memory,
                none => none.insert(program.layout(&threads)?),
            };
            Ok(timed(program, &threads, memory)?.0.seconds)
        })
    };

    let mut rounds = Vec::new();
    let mut traffic = Vec::new();
    let mut before = run_threads()?;
    for _ in 0..how.rounds {
        let (Times { seconds, .. }, mine) = timed(program, crew, &memory)?;
        traffic = crew.gather(mine)?;
        crew.alone(|| match &expected {
            Some((_, expected)) => check(program, &program.collect(&memory), expected),
            None => Ok(()),
        })?;
        let after = run_threads()?;
        if let (Some(before), Some(after)) = (before, after) {
            rounds.push(Round { seconds, threads_before: before, threads_after: after });
        }
        before = after;
    }
    crew.alone(|| {
        let comparison = Comparison {
            ranks: crew.ranks(),
            threads: crew.threads(),
            futexes: crew.sleeps(),
            sequential_seconds: expected.as_ref().map(|(seconds, _)| *seconds),
            rounds,
            traffic,
        };
        comparison.print(program, how.json)
    })?;
    Ok(())
}

/// Refuses a problem whose shared memory alone is more than this machine has free.
fn refuse_too_large(bytes: u64) -> Result<(), Failure> {
    match available_bytes() {
        Some(available) if bytes > available => Err(Failure::Input(format!(
            "the problem takes {} of memory and this machine has {} free: make it smaller",
            show_bytes(bytes),
            show_bytes(available)
        ))),
        _ => Ok(()),
    }
}

fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_how_much_memory_is_free() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        refuse_too_large(1 << 20).unwrap();
        let message = refuse_too_large(1 << 60).unwrap_err().to_string();
        assert!(message.contains("1073741824.0 GiB"), "{message}");
        assert_eq!(show_bytes(5 << 20), "5.0 MiB");
        assert_eq!(show_bytes(512), "0.5 KiB");
    }
}
