use mapwire_driver::profile::{Range, Site};

use super::*;

fn site(text: &str, line: u32) -> Site {
    Site { text: text.to_owned(), line, allocations: 1, bytes: 4096 }
}

fn unit(page: u64, read_faults: u64, write_faults: u64, part: usize) -> Unit {
    let mut parts = [0; 8];
    parts[part / 64] = 1 << (part % 64);
    let parts = if write_faults > 0 { parts } else { [0; 8] };
    let (key, first) = (1 << 63 | 1 << 52 | page, page << 12);
    Unit { key, first, read_faults, write_faults, length: 4096, parts, ..Unit::default() }
}

fn report(rank: u32, sites: Vec<Site>, units: Vec<Unit>) -> Report {
    let ranges = (0..sites.len()).map(|site| {
        let first = (site as u64 + 1) << 12;
        Range { first, end: first + 4096, site }
    });
    Report::of(rank, Means::Minipages, ranges.collect(), sites, units)
}

#[test]
fn what_a_rank_faults_on_is_of_the_place_where_another_allocated_it() {
    let mine = report(0, vec![site("src/a.rs", 3), site("grid", 0)], vec![unit(2, 1, 0, 0)]);
    let profile = Profile::join(&[mine, report(1, vec![], vec![unit(1, 5, 0, 0), unit(9, 1, 0, 0)])]);
    let told: Vec<(String, u64)> = profile.told().map(|row| (row.place(), row.faults())).collect();
    let expected = [("src/a.rs:3", 5), ("grid", 1), ("not known where", 1)];
    assert_eq!(told, expected.map(|(place, faults)| (place.to_owned(), faults)));
}

#[test]
fn ranks_that_store_to_different_parts_share_falsely_and_those_that_meet_do_not() {
    let of = |part_of_1, faults_of_1| {
        let mine = report(0, vec![site("src/a.rs", 3)], vec![unit(1, 0, 9, 7)]);
        Profile::join(&[mine, report(1, vec![], vec![unit(1, 0, faults_of_1, part_of_1)])]).rows[0].falsely
    };
    assert_eq!(of(8, 4), 13);
    assert_eq!(of(7, 4), 0);
    assert_eq!(of(8, 1), 0, "once is no turn");
}

#[test]
fn the_first_rule_that_holds_gives_the_advice() {
    let ranks = |ranks: &[u32]| ranks.iter().map(|rank| (*rank, 50)).collect::<BTreeMap<_, _>>();
    let row = Row { read_faults: 50, write_faults: 50, ..Row::default() };
    let falsely =
        Row { falsely: 30, false_ranks: [0, 2].into(), false_bytes: 80, writers: ranks(&[0, 2]), ..row.clone() };
    let in_turns = Row { returned: 30, writers: ranks(&[0, 1, 2]), ..row.clone() };
    let read_by_all = Row { writers: ranks(&[0]), readers: ranks(&[0, 1, 2]), ..row.clone() };
    let in_row = Row { in_row: 60, readers: ranks(&[1]), ..row.clone() };
    let loaded = Row { readers: ranks(&[1, 2, 3, 4, 5]), ..row.clone() };
    for (row, says) in [
        (&falsely, "ranks 0 and 2 store to different parts of a unit of 80 bytes"),
        (&Row { is_lazy: true, ..falsely.clone() }, "begin each rank's part on a page"),
        (&in_turns, "ranks 0, 1 and 2 store to the same bytes in turns"),
        (&read_by_all, "rank 0 stores, ranks 1 and 2 load: --coherence hlrc, or push"),
        (&Row { is_lazy: true, ..read_by_all.clone() }, "rank 0 stores, ranks 1 and 2 load: push"),
        (&in_row, "rank 1 faults unit by unit: prefetch"),
        (&loaded, "5 ranks load what was stored before"),
    ] {
        let advice = row.advice().unwrap();
        assert!(advice.contains(says), "{advice}");
    }
    assert_eq!(Row { writers: ranks(&[1]), ..row }.advice(), None);
}

#[test]
fn a_pipe_a_link_and_a_file_without_end_hold_nobody_up_and_sums_do_not_overflow() {
    let folder = tempfile::tempdir().unwrap();
    let path = |rank| file_of(folder.path(), rank);
    rustix::fs::mkfifoat(rustix::fs::CWD, path(0), rustix::fs::Mode::RWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path(1)).unwrap();
    File::create(path(2)).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(Profile::read(folder.path(), 0..3), None);
    let full = [0, 1].map(|rank| {
        let mut report = report(rank, vec![], vec![]);
        report.left_out = u64::MAX;
        report
    });
    assert_eq!(Profile::join(&full).left_out, u64::MAX);
}
