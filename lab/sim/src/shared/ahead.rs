//! Minipages that are requested ahead of any access, and what that must not do.

use mapwire_dsm::{Address, PAGE_BYTES};
use mapwire_vmmc::service::Access;

use super::{Doing, Program, Programs, SharedShape, Wanted};
use crate::cluster::{Cluster, Observer};
use crate::coverage::Condition;

impl Programs {
    /// A thread may request units ahead of its loads.
    pub(super) fn prefetch(&mut self, cluster: &mut Cluster, who: usize) {
        let SharedShape { allocations, units, .. } = self.shape;
        let random = &mut self.programs[who].random;
        if units == 0 || !random.chance(20) {
            return;
        }
        let first = allocations - units + random.below(units.into()) as u32;
        let wanted: Vec<Address> = (first..allocations).map(|number| self.allocations[number as usize].0).collect();
        let (clock_ns, thread) = (cluster.clock_ns(self.programs[who].at.node), self.thread_of(who));
        self.coverage.note(Condition::Prefetched);
        let ahead = self.call(cluster, who, |dsm| {
            for address in wanted {
                let page = address.offset_bytes / PAGE_BYTES;
                // It is refused when too many are under way.
                let _ = dsm.prefetch(clock_ns, thread, address.view, page, Wanted::Read);
            }
            dsm.counters().read_ahead
        });
        self.programs[who].is_pending = false;
        if ahead.is_some_and(|count| count > 0) {
            self.coverage.note(Condition::ReadAhead);
        }
    }

    /// A rank gets the right to store only if a thread of it will, and another loses its copy for no other reason. Rank 0, which allocates
    /// all, opens several units for stores at its first access to one of them.
    pub(super) fn check_store(&mut self, now_ns: u64, rank: usize, at: (u16, u64), access: Access) {
        let threads = usize::from(self.shape.threads);
        let stores = |program: &Program| match program.doing {
            Doing::Allocating => access == Access::Write,
            Doing::Touching(touch) if rank == 0 && access == Access::Write => {
                let (Address { view, offset_bytes }, bytes) = self.allocations[touch.allocation];
                view == at.0 && (offset_bytes..offset_bytes + bytes).contains(&at.1)
            }
            Doing::Touching(touch) => touch.store.is_some() && self.unit_of(&touch) == at,
            _ => false,
        };
        let of_rank = rank * threads..(rank + 1) * threads;
        let mut others = self.programs.iter().enumerate().filter(|(who, _)| !of_rank.contains(who));
        let is_right = match access {
            Access::Write => self.programs[of_rank.clone()].iter().any(stores),
            Access::Read => true,
            Access::None => others.any(|(_, program)| stores(program)),
        };
        if !is_right {
            let (view, offset) = at;
            let text = format!("rank {rank} gets {access:?} at view {view}, {offset:#x}, where nobody stores");
            self.broke(now_ns, "rights", text);
        }
    }
}
