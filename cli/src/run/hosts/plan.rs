//! Which ranks run where.

use std::ops::Range;

use mapwire_transport::board::MAX_RANKS;

use super::hostfile::Host;

/// Where the ranks of a job run: those of a host have numbers in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    hosts: Vec<(String, Range<u32>)>,
    size: u32,
}

impl Plan {
    /// Fills the slots of the hosts in their order. Hosts without a number of slots share what is left evenly; without a number of ranks
    /// they have one each.
    pub(crate) fn new(hosts: &[Host], ranks: Option<u32>) -> Result<Self, String> {
        let slots: u64 = hosts.iter().map(|h| u64::from(h.slots.unwrap_or(0))).sum();
        let open = hosts.iter().filter(|h| h.slots.is_none()).count() as u64;
        let size = ranks.map_or(slots + open, u64::from);
        if size > u64::from(MAX_RANKS) {
            return Err(format!("{size} ranks are too many; a job has at most {MAX_RANKS}"));
        }
        if open == 0 && size > slots {
            return Err(format!(
                "{size} ranks do not fit on hosts with {slots} slots in all; give hosts more of them, as in {}:{}",
                hosts[0].name,
                size.div_ceil(hosts.len() as u64)
            ));
        }
        let (mut left, mut open) = (size.saturating_sub(slots), open);
        let mut planned = Vec::new();
        let mut next = 0;
        for host in hosts {
            let count = match host.slots {
                Some(slots) => u64::from(slots),
                None => {
                    let count = left.div_ceil(open);
                    (left, open) = (left - count, open - 1);
                    count
                }
            };
            let end = (next + count).min(size);
            if next < end {
                planned.push((host.name.clone(), next as u32..end as u32));
            }
            next = end;
        }
        Ok(Self { hosts: planned, size: size as u32 })
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    pub(crate) fn hosts(&self) -> impl ExactSizeIterator<Item = (&str, Range<u32>)> {
        self.hosts.iter().map(|(name, ranks)| (&**name, ranks.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::hostfile::of_option;
    use super::*;

    fn counts(hosts: &str, ranks: Option<u32>) -> Result<Vec<u32>, String> {
        let plan = Plan::new(&of_option(hosts).unwrap(), ranks)?;
        let counts: Vec<u32> = plan.hosts().map(|(_, ranks)| ranks.len() as u32).collect();
        assert_eq!(counts.iter().sum::<u32>(), plan.size());
        Ok(counts)
    }

    #[test]
    fn slots_are_filled_in_order_and_the_rest_is_shared_evenly() {
        assert_eq!(counts("a,b", Some(5)), Ok(vec![3, 2]));
        assert_eq!(counts("a,b,c", None), Ok(vec![1, 1, 1]));
        assert_eq!(counts("a:4,b:2", None), Ok(vec![4, 2]));
        assert_eq!(counts("a:4,b:2", Some(5)), Ok(vec![4, 1]));
        assert_eq!(counts("a:2,b,c", Some(7)), Ok(vec![2, 3, 2]));
        assert_eq!(counts("a:2,b:2", Some(1)), Ok(vec![1]));
        assert_eq!(counts("a,b,c", Some(2)), Ok(vec![1, 1]));
    }

    #[test]
    fn too_many_ranks_are_refused_with_what_would_do() {
        let error = counts("a:2,b:2", Some(9)).unwrap_err();
        assert!(error.contains("4 slots") && error.contains("a:5"), "{error}");
        let error = counts("a:4096,b:4096", None).unwrap_err();
        assert!(error.contains("8192") && error.contains("4096"), "{error}");
    }
}
