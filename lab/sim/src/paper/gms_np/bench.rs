//! Runs of the machine: a requesting node, a directory node, a storing node.

use std::collections::BTreeSet;

use mapwire_gms::{Outcome, PageName, RowSize, SpaceId};
use mapwire_wire::NodeId;

use crate::Random;
use crate::directory::{Call, HostLoad, Load, Machine, MachineError, Placement, Shape};
use crate::hardware::{Lane, Profile, Ps, Span};

pub(super) const A: u16 = 0;
pub(super) const B: u16 = 1;
pub(super) const C: u16 = 2;

#[derive(Clone, Debug)]
pub(super) struct Bench {
    pub(super) profile: Profile,
    pub(super) placement: Placement,
    pub(super) row_size: RowSize,
    pub(super) state: HostLoad,
}

/// Where the pages of a run lie in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Each in a row of its own: no collisions.
    Apart,
    /// All in one chain of rows.
    Chained,
}

/// The pages of a file, in whatever order suits the directory: those that `fits` takes.
pub(super) fn pages(mut fits: impl FnMut(PageName) -> bool) -> impl Iterator<Item = PageName> {
    let file = SpaceId::File { device: 1, inode: 1, generation: 0 };
    (0..).map(move |page| PageName::new(&file, page)).filter(move |&name| fits(name))
}

/// What a lookup took at the directory node (GMS-NP Table 1).
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    /// From the request's arrival: NIC's processor up to the interrupt, or to the answer.
    pub(super) nic_ps: Ps,
    /// The host, up to the answer.
    pub(super) host_ps: Ps,
    /// What parts of the directory node did, from the request's first byte on.
    pub(super) spans: Vec<Span>,
}

impl Lookup {
    pub(super) fn total_ps(&self) -> Ps {
        self.nic_ps + self.host_ps
    }

    /// How long the NIC's processor did what has one of these labels, up to its answer.
    pub(super) fn took(&self, labels: &[&str]) -> Ps {
        let nic = self.spans.iter().filter(|span| span.lane == Lane::Nic);
        let before = nic.take_while(|span| span.label != "modifies");
        before.filter(|span| labels.contains(&span.label)).map(|span| span.to_ps - span.from_ps).sum()
    }
}

/// What a node did at a rate of getpages (GMS-NP Table 5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    pub(super) load: Load,
    pub(super) elapsed_ps: Ps,
}

impl Busy {
    /// Thousandths of a percent of the time.
    pub(super) fn percent(self, part_ps: Ps) -> i64 {
        let milli = u128::from(part_ps) * 100_000 / u128::from(self.elapsed_ps.max(1));
        milli as i64
    }
}

impl Bench {
    /// The cluster, with `count` pages of A stored at C and listed at B, from the first in the table to the last.
    pub(super) fn begin(&self, count: usize, spread: Spread) -> Result<(Machine, Vec<PageName>), MachineError> {
        let modulus = match spread {
            Spread::Apart => count.next_power_of_two(),
            // No table that is used here has more rows for hashes to choose from, in host memory or in the NIC's.
            Spread::Chained => 1024,
        };
        let directory_bytes = match spread {
            Spread::Apart => 2 * modulus * self.row_size.bytes(),
            Spread::Chained => 256 << 10,
        };
        let shape =
            Shape { nodes: 3, placement: self.placement, row_size: self.row_size, directory_bytes, pool_frames: 1024 };
        let mut machine = Machine::new(self.profile.clone(), shape)?;
        let mut used = BTreeSet::new();
        let names = pages(|name| {
            let row = name.hash().0 % modulus as u32;
            machine.directory_node(name) == Some(NodeId(B))
                && match spread {
                    Spread::Apart => used.insert(row),
                    Spread::Chained => row == 0,
                }
        });
        let names: Vec<_> = names.take(count).collect();
        for &name in &names {
            machine.place(name, A, NodeId(C))?;
        }
        machine.set_host_load(B, self.state);
        Ok((machine, names))
    }

    /// One program that takes one page after the other. Gives how long each getpage took.
    pub(super) fn latencies(&self, count: usize) -> Result<Vec<Ps>, MachineError> {
        let (mut machine, names) = self.begin(count, Spread::Apart)?;
        let mut taken = Vec::new();
        for &name in &names {
            let asked_ps = machine.now_ps();
            let at_ps = get(&mut machine, name, Call::Take)?;
            taken.push(at_ps - asked_ps);
            // The next is not to meet what this one leaves behind.
            while machine.poll_told()?.is_some() {}
        }
        Ok(taken)
    }

    pub(super) fn latency(&self) -> Result<Ps, MachineError> {
        let mut taken = self.latencies(128)?;
        taken.sort_unstable();
        Ok(taken[taken.len() / 2])
    }

    /// Looks up the page at each place of a chain, one after the other, changing nothing.
    pub(super) fn lookups(&self, places: usize) -> Result<Vec<Lookup>, MachineError> {
        let (mut machine, names) = self.begin(places, Spread::Chained)?;
        let look = |name| self.look(&mut machine, name, Call::Read);
        names.into_iter().map(look).collect()
    }

    /// One getpage that finds its page first.
    pub(super) fn lookup(&self) -> Result<Lookup, MachineError> {
        let (mut machine, names) = self.begin(1, Spread::Apart)?;
        self.look(&mut machine, names[0], Call::Take)
    }

    fn look(&self, machine: &mut Machine, name: PageName, call: Call) -> Result<Lookup, MachineError> {
        machine.timeline.begin();
        get(machine, name, call)?;
        // What goes on behind the answer ends, too.
        while machine.poll_told()?.is_some() {}
        let mut spans = machine.timeline.take();
        spans.retain(|span| span.node == B);
        let first = |lane| spans.iter().find(move |span| span.lane == lane);
        let (begun_ps, arrived_ps) = first(Lane::ReceiveWire).map_or((0, 0), |span| (span.from_ps, span.to_ps));
        let sent_ps = first(Lane::SendWire).map_or(0, |span| span.from_ps);
        let (raised_ps, answered_ps) = match first(Lane::Host) {
            Some(handles) => {
                let answers = spans.iter().find(|span| span.label == "answers");
                (handles.from_ps, answers.map_or(0, |span| span.to_ps))
            }
            None => (sent_ps, sent_ps),
        };
        for span in &mut spans {
            span.from_ps -= begun_ps;
            span.to_ps -= begun_ps;
        }
        Ok(Lookup { nic_ps: raised_ps - arrived_ps, host_ps: answered_ps - raised_ps, spans })
    }

    /// So many getpages a second, at even intervals or at drawn ones. Gives the load of B.
    pub(super) fn busy(&self, a_second: u64, seed: Option<u64>, count: usize) -> Result<Busy, MachineError> {
        let (mut machine, names) = self.begin(count, Spread::Apart)?;
        let mean_ps = 1_000_000_000_000 / a_second;
        let mut random = seed.map(Random::new);
        let mut at_ps = machine.now_ps();
        for &name in &names {
            machine.ask(at_ps, A, name, Call::Take);
            at_ps += match &mut random {
                None => mean_ps,
                Some(random) => random.below(2 * mean_ps),
            };
        }
        while machine.poll_told()?.is_some() {}
        Ok(Busy { load: machine.load(B), elapsed_ps: at_ps })
    }

    /// What B does for one call about a page that is in global memory, or is not, if nothing else is under way.
    pub(super) fn operation(&self, call: Call, is_there: bool) -> Result<Load, MachineError> {
        let (mut machine, names) = self.begin(1, Spread::Apart)?;
        let name = names[0];
        if !is_there {
            get(&mut machine, name, Call::Take)?;
            while machine.poll_told()?.is_some() {}
        }
        let before = machine.load(B);
        machine.ask(machine.now_ps(), A, name, call);
        while machine.poll_told()?.is_some() {}
        Ok(machine.load(B) - before)
    }

    /// Bare messages of so many bytes from A to B, one at once or many behind each other. Gives when each was there.
    pub(super) fn messages(&self, bytes: u64, count: usize) -> Result<Vec<Ps>, MachineError> {
        let (mut machine, _) = self.begin(0, Spread::Apart)?;
        for _ in 0..count {
            machine.send(A, NodeId(B), bytes);
        }
        let mut arrivals = Vec::new();
        while let Some(told) = machine.poll_told()? {
            arrivals.push(told.at_ps);
        }
        Ok(arrivals)
    }
}

/// A asks for a page, and time passes until it has come. Gives when that was.
fn get(machine: &mut Machine, name: PageName, call: Call) -> Result<Ps, MachineError> {
    machine.ask(machine.now_ps(), A, name, call);
    while let Some(told) = machine.poll_told()? {
        if matches!(told.outcome, Some(Outcome::Page { tag, .. }) if tag == name.page) {
            return Ok(told.at_ps);
        }
    }
    Err(MachineError::Lost { page: name.page, node: A })
}
