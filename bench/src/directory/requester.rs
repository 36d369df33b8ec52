//! The rank that asks: raw messages, lookups of pages that are not there, and getpages.

use std::cell::Cell;
use std::time::{Duration, Instant};

use mapwire::Node;
use mapwire::global::GlobalMemory;
use mapwire::services::NodeId;
use mapwire_gms::{GetPage, Outcome, PageName, PutPage};

use super::echo;
use super::roles::{OWNER, PAGES, PATIENCE, STORING};
use crate::BenchError;

/// Frames of the program: puts that are under way while the directory is filled.
pub(super) const FRAMES: u32 = 16;

/// Spaces of the pages that are stored, and of those that are not.
const THERE: u64 = 1;
const ABSENT: u64 = 2;

pub(super) struct Requester<'a> {
    node: &'a Node,
    memory: &'a GlobalMemory,
    /// Pages whose directory node is the owner.
    there: Vec<PageName>,
    absent: Vec<PageName>,
    next: Cell<usize>,
}

/// How long operations took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) median_us: f64,
    pub(super) late_us: f64,
    pub(super) per_second: f64,
}

type Part = fn(&Taken) -> f64;

impl Taken {
    /// The figures of a row: name, unit, value.
    pub(super) const PARTS: [(&'static str, &'static str, Part); 3] =
        [("p50", "us", |it| it.median_us), ("p99", "us", |it| it.late_us), ("rate", "1/s", |it| it.per_second)];
}

impl<'a> Requester<'a> {
    pub(super) fn new(node: &'a Node, memory: &'a GlobalMemory) -> Result<Self, BenchError> {
        let of = |space| {
            memory.call(move |gms, _| {
                let names = (0..).map(move |page| PageName { space, page });
                let map = gms.map();
                let of_owner = |name: &PageName| map.directory_node(name.hash()) == Some(NodeId(OWNER));
                names.filter(of_owner).take(PAGES as usize).collect()
            })
        };
        Ok(Self { node, memory, there: of(THERE)?, absent: of(ABSENT)?, next: Cell::new(0) })
    }

    /// Stores all pages, so that the owner lists them.
    pub(super) fn fill(&self) -> Result<(), BenchError> {
        for names in self.there.chunks(FRAMES as usize) {
            self.memory.call(|gms, now_ns| {
                let mut frames = 0..;
                names.iter().try_for_each(|&name| {
                    let frame = frames.next().unwrap_or(0);
                    let put = PutPage {
                        name,
                        version: 1,
                        frame,
                        tag: u64::from(frame),
                        checksum: 0,
                        age_ms: 0,
                        on_disk: false,
                        copies: 1,
                        to: Some(NodeId(STORING)),
                    };
                    gms.put(now_ns, put)
                })
            })??;
            for _ in names {
                match self.outcome()? {
                    Outcome::Stored { copies: 1, .. } => {}
                    other => return Err(format!("a page was not stored: {other:?}").into()),
                }
            }
        }
        Ok(())
    }

    fn outcome(&self) -> Result<Outcome, BenchError> {
        Ok(self.memory.wait(PATIENCE, |gms| gms.poll_outcome())?)
    }

    fn ask(&self, names: &[PageName]) -> Result<Outcome, BenchError> {
        let at = self.next.get();
        self.next.set(at + 1);
        let get = GetPage {
            // Neighbours in the table are far from each other in time.
            name: names[at * 7919 % names.len()],
            frame: 0,
            tag: 0,
            keep: true,
        };
        self.memory.call(|gms, now_ns| gms.get(now_ns, get))??;
        self.outcome()
    }

    /// A message to the owner and back.
    pub(super) fn round_trip(&self) -> Result<(), BenchError> {
        echo::round_trip(self.node)
    }

    /// A getpage of a page that is not there: the owner scans the whole row, and answers.
    pub(super) fn lookup(&self) -> Result<(), BenchError> {
        match self.ask(&self.absent)? {
            Outcome::Absent { .. } => Ok(()),
            other => Err(format!("a page is there that nobody put: {other:?}").into()),
        }
    }

    /// A getpage.
    pub(super) fn get(&self) -> Result<(), BenchError> {
        match self.ask(&self.there)? {
            Outcome::Page { version: 1, .. } => Ok(()),
            other => Err(format!("a page that was put did not come: {other:?}").into()),
        }
    }

    /// Does `what` for so long, at `rate` a second or one after the other.
    pub(super) fn run(
        &self,
        time: Duration,
        rate: Option<u64>,
        what: impl Fn(&Self) -> Result<(), BenchError>,
    ) -> Result<Taken, BenchError> {
        let begun = Instant::now();
        let mut taken_us = Vec::new();
        while begun.elapsed() < time {
            if let Some(rate) = rate {
                let due = Duration::from_secs(1).mul_f64(taken_us.len() as f64 / rate as f64);
                std::thread::sleep(due.saturating_sub(begun.elapsed()));
            }
            let asked = Instant::now();
            what(self)?;
            taken_us.push(asked.elapsed().as_nanos() as f64 / 1000.0);
        }
        let per_second = taken_us.len() as f64 / begun.elapsed().as_secs_f64();
        taken_us.sort_unstable_by(f64::total_cmp);
        let part = |share: f64| {
            let at = (taken_us.len() as f64 * share) as usize;
            taken_us.get(at).or(taken_us.last()).copied().unwrap_or(0.0)
        };
        Ok(Taken { median_us: part(0.5), late_us: part(0.99), per_second })
    }
}
