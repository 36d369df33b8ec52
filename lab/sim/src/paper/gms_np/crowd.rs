//! Many nodes at once, each in all roles.

use std::collections::BTreeMap;

use mapwire_gms::{Outcome, PageName, RowSize, SpaceId};
use mapwire_wire::NodeId;

use super::bench::Busy;
use crate::Random;
use crate::directory::{Call, Machine, MachineError, Placement, Shape};
use crate::hardware::{Profile, Ps};

/// Pages that each node takes.
const PAGES: u64 = 48;

#[derive(Clone, Debug)]
pub(super) struct Crowd {
    pub(super) profile: Profile,
    pub(super) placement: Placement,
    pub(super) row_size: RowSize,
    pub(super) nodes: u16,
    /// Getpages of each node in a second.
    pub(super) a_second: u64,
    /// So many percent of the pages are listed at node 0, others anywhere; all anywhere if `None`.
    pub(super) hot_percent: Option<u64>,
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Crowded {
    pub(super) mean_ps: Ps,
    /// 99 of 100 getpages took no longer.
    pub(super) late_ps: Ps,
    pub(super) first: Busy,
    /// Loads and times of all nodes, added up.
    pub(super) all: Busy,
}

impl Crowd {
    /// Pages of a node, in an order that the seed gives.
    fn names(&self, machine: &Machine, node: u16, random: &mut Random) -> Vec<PageName> {
        let space = SpaceId::Anonymous { node, incarnation: 1, region: 0 };
        let mut pages = (0..).map(|page| PageName::new(&space, page));
        let mut next = |at_first: Option<bool>| {
            pages.find(|&name| {
                let is_first = machine.directory_node(name) == Some(NodeId(0));
                at_first.is_none_or(|wanted| wanted == is_first)
            })
        };
        let names = (0..PAGES).map(|_| {
            let at_first = self.hot_percent.map(|percent| random.chance(percent));
            next(at_first)
        });
        names.flatten().collect()
    }

    pub(super) fn run(&self) -> Result<Crowded, MachineError> {
        let shape = Shape {
            nodes: self.nodes,
            placement: self.placement,
            row_size: self.row_size,
            directory_bytes: 512 << 10,
            pool_frames: 4 * PAGES as u32,
        };
        let mut machine = Machine::new(self.profile.clone(), shape)?;
        let mut random = Random::new(self.seed);
        let mut asks = Vec::new();
        for node in 0..self.nodes {
            for (at, name) in (0..).zip(self.names(&machine, node, &mut random)) {
                // Each node stores as many pages as any other.
                let step = 1 + at % (self.nodes - 1);
                let storing = NodeId((node + step) % self.nodes);
                machine.place(name, node, storing)?;
                asks.push((node, name));
            }
        }
        let mean_ps = 1_000_000_000_000 / self.a_second;
        let begin_ps = machine.now_ps();
        let mut next_ps = vec![begin_ps; usize::from(self.nodes)];
        let mut asked = BTreeMap::new();
        for (node, name) in asks {
            let at_ps = &mut next_ps[usize::from(node)];
            *at_ps += random.below(2 * mean_ps);
            machine.ask(*at_ps, node, name, Call::Take);
            asked.insert((node, name.page), *at_ps);
        }
        let mut took = Vec::new();
        let mut end_ps = begin_ps;
        while let Some(told) = machine.poll_told()? {
            if let Some(Outcome::Page { tag, .. }) = told.outcome
                && let Some(at_ps) = asked.remove(&(told.node, tag))
            {
                took.push(told.at_ps - at_ps);
                end_ps = told.at_ps;
            }
        }
        if let Some(&(node, page)) = asked.keys().next() {
            return Err(MachineError::Lost { page, node });
        }
        took.sort_unstable();
        let elapsed_ps = end_ps - begin_ps;
        let busy = |load, nodes| Busy { load, elapsed_ps: nodes * elapsed_ps };
        let mut sum = machine.load(0);
        for node in 1..self.nodes {
            let load = machine.load(node);
            sum.nic_ps += load.nic_ps;
            sum.nic_sending_ps += load.nic_sending_ps;
            sum.host_ps += load.host_ps;
            sum.interrupts += load.interrupts;
        }
        let count = took.len().max(1);
        Ok(Crowded {
            mean_ps: took.iter().sum::<Ps>() / count as u64,
            late_ps: took.get(count * 99 / 100).copied().unwrap_or(0),
            first: busy(machine.load(0), 1),
            all: busy(sum, u64::from(self.nodes)),
        })
    }
}
