//! `PMI_process_mapping`: on which host each rank is.
//!
//! `(vector,(FIRST,HOSTS,RANKS),…)`: from host FIRST on, HOSTS hosts have RANKS ranks each, in turn. The list of blocks
//! begins again until all ranks have a host.

/// The ranks that are on the host of `rank`, ascending, or `None` if `text` is no mapping of `size` ranks.
pub(super) fn local_ranks(text: &str, rank: u32, size: u32) -> Option<Vec<u32>> {
    let blocks = text.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut blocks: Vec<[u32; 3]> = blocks.split("),").map(|block| read_block(block.trim())).collect::<Option<_>>()?;
    // Others would be passed over without end.
    blocks.retain(|&[_, hosts, ranks]| hosts > 0 && ranks > 0);
    let runs = || {
        let blocks = blocks.iter().cycle();
        let runs = blocks
            .flat_map(|&[first, hosts, ranks]| (0..hosts).map(move |at| (u64::from(first) + u64::from(at), ranks)));
        // The ranks of each run, until the last rank of the job.
        runs.scan(0_u32, move |next, (host, ranks)| {
            let begin = *next;
            *next = begin.saturating_add(ranks).min(size);
            (begin < size).then_some((host, begin..*next))
        })
    };
    let (here, _) = runs().find(|(_, ranks)| ranks.contains(&rank))?;
    let local = runs().filter(|(host, _)| *host == here);
    Some(local.flat_map(|(_, ranks)| ranks).collect())
}

fn read_block(text: &str) -> Option<[u32; 3]> {
    let text = text.strip_prefix('(')?;
    let text = text.strip_suffix(')').unwrap_or(text);
    let mut numbers = text.split(',').map(|number| number.trim().parse().ok());
    let block = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_found_on_their_hosts() {
        let cases: [(&str, u32, u32, &[u32]); 6] = [
            ("(vector,(0,1,4))", 2, 4, &[0, 1, 2, 3]),
            ("(vector,(0,4,1))", 2, 4, &[2]),
            ("(vector,(0,2,2))", 3, 4, &[2, 3]),
            ("(vector,(0,2,1))", 0, 5, &[0, 2, 4]),
            ("(vector,(0,1,2),(1,1,1))", 2, 3, &[2]),
            ("(vector,(0,1,8))", 1, 3, &[0, 1, 2]),
        ];
        for (text, rank, size, expected) in cases {
            let found = local_ranks(text, rank, size);
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_mapping_is_refused_and_never_loops() {
        let no_rank = "(vector,(0,4294967295,0))";
        for text in [
            "",
            "(vector,)",
            "(vector,(0,0,1))",
            no_rank,
            "(vector,(0,1))",
            "(vector,(0,1,1,1))",
            "(vector,(a,1,1))",
            "(0,1,4)",
            "(vector,(0,1,-4))",
        ] {
            assert_eq!(local_ranks(text, 0, 4), None, "{text}");
        }
        let mixed = "(vector,(0,1,1),(4294967295,3,0))";
        assert_eq!(local_ranks(mixed, 0, 3), Some(vec![0, 1, 2]));
    }
}
