//! `far-fault --transport udp`: read faults on pages that a donor of another host has, beside a bare fault and a bare round trip of
//! datagrams that brings a page.

use std::cell::Cell;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mapwire_translation::PAGE_BYTES;
use serde_json::json;

use super::bare::BarePages;
use super::donors::{Donors, Host};
use super::hosts::Hosts;
use super::{Far, TIMES, access, limit_pages, remark};
use crate::args::Plan;
use crate::measure::{Effort, Figure, paired_each, quantile};
use crate::row::Report;
use crate::words::Words;
use crate::{BenchError, udp};

/// MTUs of the line: of most networks, and of those that carry a page at once.
const MTUS: [usize; 2] = [1500, 9000];

/// Quantiles of the faults of a run that are reported.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Bytes of the baseline's question: as many as name a page.
const QUESTION_BYTES: usize = 32;

/// How long an answer of the baseline may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// `mapwire bench far-fault --transport udp`.
pub(crate) fn fault(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    if plan.insecure {
        return Err("pages always travel to donors sealed: leave --insecure out".into());
    }
    MTUS.into_iter().try_for_each(|mtu| of_line(plan, mtu, report))
}

fn of_line(plan: &Plan, mtu: usize, report: &mut Report) -> Result<(), BenchError> {
    let limit = limit_pages(plan);
    let count = if plan.quick { 1000 } else { 10_000 };
    let effort = Effort::planned(plan, 2, 7);
    let hosts = Hosts::new(mtu)?;
    hosts.enter(0)?;
    let bare = Bare::new(&hosts, count)?;
    let donors = Donors::start(1, Host::Other(&hosts, 1), limit * TIMES)?;
    let store = Box::new(donors.store()?);
    let far = Far::over(store, Some(donors), limit)?;
    // What is in RAM changed no more: nothing is stored while faults are measured.
    far.scan(false)?;
    let random = Cell::new(1);
    far.fault_times(count, false, &random);
    let baseline = || match &far.donors {
        Some(donors) => donors.while_still(|| bare.times(count)),
        None => bare.times(count),
    };
    let figures =
        paired_each(effort, || baseline().map(quantiles), || Ok(quantiles(far.fault_times(count, false, &random))));
    if let Some(figures) = report.settled(&format!("MTU {mtu}"), figures)? {
        rows(report, limit, mtu, &figures);
    }
    remark(report, &far);
    Ok(())
}

fn rows(report: &mut Report, limit: usize, mtu: usize, figures: &[Figure]) {
    for ((quantile, _), figure) in QUANTILES.iter().zip(figures) {
        let case = [
            ("access", json!("read")),
            ("store", json!("donor of another host")),
            ("mtu", json!(mtu)),
            ("quantile", json!(quantile)),
            ("transport", json!("udp")),
            ("limit_bytes", json!(limit * PAGE_BYTES)),
        ];
        report.rows(&case, "us", "bare fault + raw UDP", std::slice::from_ref(figure));
    }
}

fn quantiles(mut times: Vec<f64>) -> [f64; QUANTILES.len()] {
    times.sort_by(f64::total_cmp);
    QUANTILES.map(|(_, share)| quantile(&times, share))
}

/// The limit: a fault that the kernel's own calls serve, and a question by UDP that a page answers; both ends spin.
struct Bare {
    pages: BarePages,
    asks: UdpSocket,
    answers: UdpSocket,
}

impl Bare {
    fn new(hosts: &Hosts, count: usize) -> Result<Self, BenchError> {
        let bind = |host: usize| udp::bind((Hosts::address(host), 0));
        let (asks, answers) = (bind(0)?, hosts.at(1, || bind(1))??);
        asks.connect(answers.local_addr()?)?;
        answers.connect(asks.local_addr()?)?;
        let pages = BarePages::new(count)?;
        Ok(Self { pages, asks, answers })
    }

    /// Microseconds of so many faults, each with its round trip.
    fn times(&self, count: usize) -> Result<Vec<f64>, BenchError> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (socket, is_over) = (&self.answers, &is_over);
            let answers = scope.spawn(|| answer(socket, is_over));
            let times = self.ask(count);
            is_over.store(true, Ordering::Relaxed);
            answers.join().map_err(|_| "the baseline panicked")??;
            times
        })
    }

    fn ask(&self, count: usize) -> Result<Vec<f64>, BenchError> {
        self.pages.drop_all()?;
        let words = Words::new(self.pages.memory().as_ptr(), self.pages.memory().bytes());
        let mut page = [0; PAGE_BYTES];
        let mut times = Vec::with_capacity(count);
        for at in (0..count).map(|at| at * 7919 % count) {
            let start = Instant::now();
            access(words, at, None);
            self.asks.send(&[1; QUESTION_BYTES])?;
            while udp::now(self.asks.recv(&mut page))? != Some(PAGE_BYTES) {
                if start.elapsed() > PATIENCE {
                    return Err("the baseline lost a datagram".into());
                }
            }
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
        }
        Ok(times)
    }
}

/// Answers each question by a page, until it is over.
fn answer(socket: &UdpSocket, is_over: &AtomicBool) -> std::io::Result<()> {
    let (mut question, page) = ([0; QUESTION_BYTES], [7; PAGE_BYTES]);
    while !is_over.load(Ordering::Relaxed) {
        if udp::now(socket.recv(&mut question))?.is_some() {
            socket.send(&page)?;
        }
    }
    Ok(())
}
