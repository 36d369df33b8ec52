//! `fault`: page faults of the shared memory, beside the raw parts of each.

use mapwire_host::faults::Access;
use mapwire_settings::Transport;

use super::raw_fault::RawFault;
use super::*;
use crate::measure::{median, timed_us};

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
        return Ok(());
    };
    let (bytes, copies) = case.split_once(' ').ok_or("a case names its readers")?;
    let (bytes, copies) = (bytes.parse()?, copies.parse()?);
    let (node, steps, memory) = join()?;
    let socket = (is_remote && node.rank() < 2).then(|| udp::connected(memory, node.rank())).transpose()?;
    let station = Station::new(&node, bytes, socket)?;
    let shared = station.shared.clone();
    in_step(station, steps, |leader| {
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
        let minipages = leader.part.minipages.iter();
        Ok(median(&mut minipages.map(|minipage| timed_us(|| touch(minipage))).collect::<Vec<_>>()))
    }
}
