//! `fault`: page faults of the shared memory, beside the raw parts of each.

use mapwire_host::faults::Access;
use mapwire_settings::Transport;

use super::raw_fault::RawFault;
use super::*;
use crate::measure::{median, timed_us};

/// Minipages of a page that are read together.
const SET: usize = 64;

/// `mapwire bench fault`. A case names the bytes of a minipage and the ranks that read it before rank 0 stores to it.
pub(crate) fn fault(plan: &Plan, report: &mut Report) -> Result<(), BenchError> {
    let is_remote = plan.transport() == Transport::Udp;
    let Some(case) = role() else {
        let options = ["--coherence", "minipages", "--wait", "poll", "--transport", "udp"];
        let options = &options[..if is_remote { 6 } else { 4 }];
        for bytes in [128, 4096] {
            for copies in 0..=if plan.quick { 1 } else { 3 } {
                let case = format!("{bytes} {copies}");
                Job { bench: "fault", ranks: 2 + copies, options, case: &case }.run(plan, report)?;
            }
        }
        let options = [&["--views", "64"][..], options].concat();
        return Job { bench: "fault", ranks: 2, options: &options, case: "64 set" }.run(plan, report);
    };
    let (bytes, copies) = case.split_once(' ').ok_or("a case names its readers")?;
    let bytes = bytes.parse()?;
    let copies = if copies == "set" { None } else { Some(copies.parse()?) };
    let (node, steps, memory) = join()?;
    let socket = (is_remote && node.rank() < 2).then(|| udp::connected(memory, node.rank())).transpose()?;
    let station = Station::new(&node, bytes, socket)?;
    let shared = station.shared.clone();
    in_step(station, steps, |leader| {
        let Some(copies) = copies else { return sets(plan, leader, report) };
        let raw = RawFault::new(&leader.part.shared)?;
        for owner in 0..if copies > 0 { 1 } else { OWNERS.len() } {
            for access in ["read", "write", "upgrade"] {
                if copies == 0 || access != "read" {
                    let case = FaultCase { bytes, copies, owner, access };
                    case.measure(plan, leader, &raw, report)?;
                }
            }
        }
        Ok(())
    })?;
    Ok(shared.close()?)
}

struct FaultCase {
    bytes: usize,
    copies: u64,
    owner: usize,
    access: &'static str,
}

impl FaultCase {
    fn measure(
        &self,
        plan: &Plan,
        leader: &mut Leader<Station>,
        raw: &RawFault,
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let point = format!("{} fault, owner {}", self.access, OWNERS[self.owner]);
        let samples = leader.sample(Effort::planned(plan, 3, 15), 2, &point, report, |leader, way| match way {
            0 => self.parts(leader, raw),
            _ => self.faults(leader),
        })?;
        let Some(samples) = samples else {
            return Ok(());
        };
        let (transport, baseline) = match leader.part.socket {
            None => ("shm", "raw fault + protection change + flag round trip + copy"),
            Some(_) => ("udp", "raw fault + raw UDP round trip"),
        };
        let fields = [
            ("access", json!(self.access)),
            ("bytes", json!(self.bytes)),
            ("owner", json!(OWNERS[self.owner])),
            ("copies", json!(self.copies)),
            ("faults", json!(leader.part.shared.faults().map(|it| it.to_string()))),
            ("ranks", json!(leader.part.node.size())),
            ("transport", json!(transport)),
        ];
        report.rows(&fields, "us", baseline, &samples.figures(1, 0));
        Ok(())
    }

    /// The raw parts of a fault: the fault, the owner's protection change, two messages one way each, and the copy.
    fn parts(&self, leader: &mut Leader<Station>, raw: &RawFault) -> Result<f64, BenchError> {
        let held = if self.access == "upgrade" { Access::Read } else { Access::Write };
        let [load, store, bar, close] = raw.costs(held)?;
        let (fault, change) = if self.access == "read" { (load, bar) } else { (store, close) };
        let fault = fault + round_trip(leader)?;
        if leader.part.socket.is_some() {
            return Ok(fault);
        }
        let (source, mut landing) = (vec![1_u8; self.bytes], vec![0_u8; self.bytes]);
        let copies = timed_us(|| {
            for _ in 0..64 {
                landing.copy_from_slice(black_box(&source));
                black_box(&mut landing);
            }
        });
        Ok(fault + change + if self.access == "upgrade" { 0.0 } else { copies / 64.0 })
    }

    fn faults(&self, leader: &mut Leader<Station>) -> Result<f64, BenchError> {
        leader.lead(PREPARE, self.copies, 1)?;
        if self.access == "upgrade" {
            leader.part.read_all();
        }
        leader.lead(SERVE, self.owner as u64, 1)?;
        if OWNERS[self.owner] == "sleeping" {
            std::thread::sleep(Duration::from_millis(1));
        }
        let touch = |minipage: &SharedSlice<u64>| match self.access {
            "read" => {
                black_box(minipage.get(0));
            }
            _ => minipage.set(0, 1),
        };
        Ok(median(&mut scattered(&leader.part.minipages).map(|it| timed_us(|| touch(it))).collect::<Vec<_>>()))
    }
}

/// All of them, a power of two, in an order without strides, so that nothing is read ahead.
fn scattered<T>(all: &[T]) -> impl Iterator<Item = &T> {
    (0..all.len()).map(|step| &all[step * (step + 1) / 2 % all.len()])
}

/// Rank 0 reads the minipages of a page: one by one in no order, in order, and after it has asked for all of them.
fn sets(plan: &Plan, leader: &mut Leader<Station>, report: &mut Report) -> Result<(), BenchError> {
    let samples = leader.sample(Effort::planned(plan, 3, 15), 3, "64 minipages of a page", report, |leader, way| {
        leader.lead(PREPARE, 0, 1)?;
        leader.lead(SERVE, 0, 1)?;
        let Station { shared, minipages, minipage_bytes, .. } = &leader.part;
        let page = &minipages[..SET];
        let read = |minipage: &SharedSlice<u64>| _ = black_box(minipage.get(0));
        let mut asked = Ok(());
        let took_us = timed_us(|| match way {
            0 => scattered(page).for_each(read),
            1 => page.iter().for_each(read),
            _ => {
                let runs: Vec<_> = page.iter().map(|it| (it.address(), *minipage_bytes as u64, false)).collect();
                asked = shared.prefetch_all(&runs);
                page.iter().for_each(read);
            }
        });
        asked?;
        Ok(took_us)
    })?;
    let Some(samples) = samples else { return Ok(()) };
    for (way, how) in [(1, "64 read in order, read ahead"), (2, "64 asked for at once, then read")] {
        let fields = [
            ("access", json!(how)),
            ("bytes", json!(leader.part.minipage_bytes)),
            ("owner", json!(OWNERS[0])),
            ("ranks", json!(leader.part.node.size())),
            ("transport", json!(if plan.transport() == Transport::Udp { "udp" } else { "shm" })),
        ];
        report.rows(&fields, "us", "64 read one by one", &samples.figures(way, 0));
    }
    Ok(())
}
