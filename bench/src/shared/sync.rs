//! `lock` and `barrier`, beside a flag that goes there and back.

use super::*;

/// The fields of a row that say what was measured.
fn case_of(case: &str, ranks: usize, wait: &str) -> Vec<(&'static str, serde_json::Value)> {
    vec![("case", json!(case)), ("ranks", json!(ranks)), ("wait", json!(wait)), ("transport", json!("shm"))]
}

/// `mapwire bench lock`.
pub(crate) fn lock(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let jobs = [(2, "poll"), (2, "adaptive"), (4, "poll"), (4, "adaptive")];
    let jobs = &jobs[..if plan.quick { 2 } else { jobs.len() }];
    in_jobs(
        "lock",
        plan,
        report,
        jobs,
        |_| 64,
        |_, wait| wait.to_owned(),
        |station, wait, report| {
            let effort = Effort::planned(plan, 3, 31);
            let ranks = station.node.size();
            let station = std::cell::RefCell::new(station);
            let mut placements = Placements::default();
            let figures = beside::<BenchError>(
                effort,
                &mut placements,
                || station.borrow_mut().look(),
                || station.borrow_mut().round_trip(),
                || {
                    let station = station.borrow();
                    drop(station.shared.lock(3)?);
                    let times = 1000;
                    let start = Instant::now();
                    for _ in 0..times {
                        drop(station.shared.lock(3)?);
                    }
                    Ok(start.elapsed().as_nanos() as f64 / 1000.0 / f64::from(times))
                },
            );
            let case = case_of("lock + unlock, uncontended", ranks, wait);
            let figures = report.settled("uncontended", figures)?.unwrap_or_default();
            report.rows(&case, "us", "flag round trip", &figures);
            let figures = beside::<BenchError>(
                effort,
                &mut placements,
                || station.borrow_mut().look(),
                || station.borrow_mut().round_trip(),
                || {
                    let mut station = station.borrow_mut();
                    let times = if plan.quick { 20 } else { 100 };
                    station.order(what::CONTEND, 0, times);
                    let start = Instant::now();
                    station.contend(times)?;
                    station.gather();
                    Ok(start.elapsed().as_nanos() as f64 / 1000.0 / (times * ranks as u64) as f64)
                },
            );
            let case = case_of("lock, count, unlock, contended", ranks, wait);
            let figures = report.settled("contended", figures)?.unwrap_or_default();
            report.rows(&case, "us", "flag round trip", &figures);
            station.borrow().poll();
            Ok(())
        },
    )
}

/// `mapwire bench barrier`.
pub(crate) fn barrier(plan: Plan, report: &mut Report) -> Result<(), BenchError> {
    let jobs = [(2, POLLING), (2, "poll"), (2, "adaptive"), (2, "event"), (4, "poll"), (4, "adaptive"), (4, "event")];
    let jobs = &jobs[..if plan.quick { 4 } else { jobs.len() }];
    in_jobs(
        "barrier",
        plan,
        report,
        jobs,
        |_| 64,
        |_, wait| wait.to_owned(),
        |station, wait, report| {
            let effort = Effort::planned(plan, 3, 31);
            let ranks = station.node.size();
            let station = std::cell::RefCell::new(station);
            let mut placements = Placements::default();
            let figures = beside::<BenchError>(
                effort,
                &mut placements,
                || station.borrow_mut().look(),
                || station.borrow_mut().round_trip(),
                || {
                    let mut station = station.borrow_mut();
                    let times = if ranks > 2 || wait == "event" { 20 } else { 200 };
                    station.order(what::MEET, 0, times);
                    let start = Instant::now();
                    station.meet(times)?;
                    let us = start.elapsed().as_nanos() as f64 / 1000.0 / times as f64;
                    station.gather();
                    Ok(us)
                },
            );
            let case = case_of("empty barrier", ranks, wait);
            let point = format!("{ranks} ranks, {wait}");
            let figures = report.settled(&point, figures)?.unwrap_or_default();
            report.rows(&case, "us", "flag round trip", &figures);
            Ok(())
        },
    )
}
