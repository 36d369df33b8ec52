//! Memory of donors: programs that keep there what is not in RAM, and donors that die, lie, give memory back and come late.

use std::collections::BTreeMap;

use crate::common::{Place, Running, eventually, signal};
use crate::lending::{Donor, PAGES, can_start, far_args, finish, let_it_run, rounds, start};
use mapwire_testing::namespaces::Hosts;
use rustix::process::Signal;

fn both_lend(donors: &[Donor; 2]) {
    eventually("both lend", || donors.iter().all(|donor| donor.lender().is_some()));
}

/// Two donors, and a program for which both lend.
fn start_with_two(place: &Place, copies: &str) -> ([Donor; 2], Running) {
    let first = Donor::first(place, "64M");
    let second = Donor::beside(place, &first, "64M");
    let program = start(place, &first.store, copies);
    let donors = [first, second];
    both_lend(&donors);
    (donors, program)
}

#[test]
fn a_donor_that_is_killed_loses_nothing_and_another_takes_its_place() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let donor = Donor::first(&place, "64M");
    let program = start(&place, &donor.store, "1");
    eventually("the donor lends", || donor.lender().is_some());
    let_it_run(&place, 4);
    for _ in 0..2 {
        let before = donor.lender();
        donor.kill_lender();
        eventually("another one lends", || donor.lender().is_some() && donor.lender() != before);
        let_it_run(&place, 4);
    }
    let [put, got, _] = finish(&place, program);
    assert!(put > 500 && got > 100, "{put} put, {got} got");
    // The program has not said goodbye: its lease ends.
    eventually("what was lent is given back", || donor.lender().is_none());
}

#[test]
fn when_all_donors_are_killed_at_once_the_disk_has_everything() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let first = Donor::first(&place, "64M");
    let second = Donor::beside(&place, &first, "64M");
    let program = start(&place, &first.store, "1");
    let donors = [first, second];
    for _ in 0..3 {
        both_lend(&donors);
        let_it_run(&place, 6);
        let lenders: Vec<i32> = donors.iter().filter_map(|donor| donor.lender()).collect();
        lenders.iter().for_each(|&lender| signal(lender, Signal::KILL));
        let_it_run(&place, 4);
    }
    finish(&place, program);
}

#[test]
fn with_two_copies_each_donor_may_be_killed_in_turn() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let ([first, second], program) = start_with_two(&place, "2");
    let_it_run(&place, 4);
    second.kill_lender();
    let_it_run(&place, 8);
    first.kill_lender();
    let_it_run(&place, 8);
    let [put, got, _] = finish(&place, program);
    assert!(put > 500 && got > 100, "{put} put, {got} got");
}

#[test]
fn donors_of_this_host_that_are_killed_at_once_lose_nothing_with_two_copies_either() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let (donors, program) = start_with_two(&place, "2");
    let_it_run(&place, 4);
    donors.iter().for_each(|donor| donor.kill_lender());
    let_it_run(&place, 8);
    finish(&place, program);
}

#[test]
fn a_program_that_is_stopped_for_longer_than_its_lease_keeps_its_pages() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let (donors, program) = start_with_two(&place, "2");
    let_it_run(&place, 4);
    let lenders = donors.each_ref().map(Donor::lender);
    program.signal(Signal::STOP);
    eventually("donors take the program for dead", || (0..2).all(|at| donors[at].lender() != lenders[at]));
    program.signal(Signal::CONT);
    let_it_run(&place, 8);
    finish(&place, program);
}

#[test]
fn what_a_donor_changed_is_not_believed_and_comes_from_the_disk_or_the_other_donor() {
    for copies in ["1", "2"] {
        let place = Place::new();
        if !can_start(&place) {
            return;
        }
        let ([_honest, liar], program) = start_with_two(&place, copies);
        let_it_run(&place, 6);
        for _ in 0..5 {
            liar.lie();
            let_it_run(&place, 1);
        }
        let [_, got, missed] = finish(&place, program);
        assert!(got > 1_000 && missed > 10, "{copies}: {got} got, {missed} missed");
    }
}

/// Puts what a donor has of older versions, which `old` holds, in the place of pages that have changed since; how many.
fn turn_back(donor: &Donor, old: &BTreeMap<usize, (u64, Vec<u8>)>) -> usize {
    let mut turned = 0;
    donor.each_page(|page, version, _| {
        let (_, bytes) = old.get(&page).filter(|(older, _)| *older < version)?;
        turned += 1;
        Some(bytes.clone())
    });
    turned
}

#[test]
fn an_older_version_of_a_page_is_not_believed_and_the_page_comes_from_the_disk_or_the_other_donor() {
    for copies in ["1", "2"] {
        let place = Place::new();
        if !can_start(&place) {
            return;
        }
        let ([_honest, stale], program) = start_with_two(&place, copies);
        let_it_run(&place, 4);
        let mut old = BTreeMap::new();
        stale.each_page(|page, version, bytes| {
            old.insert(page, (version, bytes.to_vec()));
            None
        });
        let mut turned = 0;
        for _ in 0..5 {
            let_it_run(&place, 3);
            turned += turn_back(&stale, &old);
        }
        let_it_run(&place, 3);
        let [_, got, missed] = finish(&place, program);
        assert!(
            turned > 100 && got > 1_000 && missed > 10,
            "{copies} copies: {turned} turned back, {got} got, {missed} missed"
        );
    }
}

#[test]
fn far_memory_is_whole_wherever_donors_and_programs_have_their_directories() {
    for directory in ["host", "nic-hm", "nic-nm"] {
        let place = Place::new();
        if !can_start(&place) {
            return;
        }
        let placed = ["serve", "--listen", "127.0.0.1:0", "--json", "--donate", "64M"];
        let placed = [&placed[..], &["--directory", directory]].concat();
        let first = Donor::of(place.command(&placed));
        let placed = ["serve", "--names", &first.store, "--json", "--donate", "64M"];
        let placed = [&placed[..], &["--directory", directory]].concat();
        let second = Donor::of(place.command(&placed));
        let args = far_args(&first.store, "1");
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.splice(1..1, ["--directory", directory]);
        let program = place.start(&args);
        eventually("both lend", || first.lender().is_some() && second.lender().is_some());
        let_it_run(&place, 6);
        second.kill_lender();
        let_it_run(&place, 4);
        let [put, got, _] = finish(&place, program);
        assert!(put > 500 && got > 100, "{directory}: {put} put, {got} got");
    }
}

#[test]
fn a_directory_without_room_in_the_nic_leaves_the_rest_to_the_disk() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let serve = ["serve", "--listen", "127.0.0.1:0", "--json", "--donate", "64M"];
    let mut command = place.command(&[&serve[..], &["--directory", "nic-nm"]].concat());
    // As much as the NIC's own tables take, and little more: the directory has room for a part of the pages.
    command.env("MAPWIRE_NIC_MEMORY", "256K");
    let donor = Donor::of(command);
    let program = start(&place, &donor.store, "1");
    eventually("the donor lends", || donor.lender().is_some());
    let_it_run(&place, 6);
    finish(&place, program);
}

#[test]
fn a_place_of_the_directory_that_is_none_is_told_with_those_there_are() {
    let place = Place::new();
    for args in [
        &["serve", "--donate", "4M", "--directory", "moon"][..],
        &["far", "--local", "8M", "--donors", "--directory", "moon", "--", "true"],
    ] {
        let done = place.run(args).code(2);
        assert!(done.err().contains("moon") && done.err().contains("host, nic-hm, nic-nm"), "{args:?}: {}", done.err());
    }
    for args in [&["serve", "--directory", "host"][..], &["far", "--local", "8M", "--directory", "host", "--", "true"]]
    {
        place.run(args).code(2);
    }
}

#[test]
fn a_donor_that_leaves_in_order_brings_what_it_has_elsewhere() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let ([_first, mut second], program) = start_with_two(&place, "2");
    let_it_run(&place, 4);
    signal(second.process.id() as i32, Signal::TERM);
    eventually("the donor has left", || second.process.try_wait().unwrap().is_some());
    assert_eq!(second.process.wait().unwrap().code(), Some(0));
    let_it_run(&place, 4);
    finish(&place, program);
}

#[test]
fn donors_that_come_late_get_pages_that_do_not_change_any_more() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let donor = Donor::first(&place, "64M");
    place.write("reads", "");
    let program = start(&place, &donor.store, "1");
    eventually("the donor lends", || donor.lender().is_some());
    let_it_run(&place, 4);
    let before = rounds(&place);
    let first = donor.lender();
    donor.kill_lender();
    eventually("another one lends", || donor.lender().is_some() && donor.lender() != first);
    let_it_run(&place, 25);
    let [_, got, _] = finish(&place, program);
    // So many pages are read in a round, and what the first lender had is gone.
    let of_first = u64::from(before + 1) * PAGES as u64 / 4;
    assert!(got > of_first + 10_000, "{got} got in all, {of_first} at most before");
}

#[test]
fn a_donor_without_room_leaves_the_rest_to_the_disk() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let donor = Donor::first(&place, "4M");
    let program = start(&place, &donor.store, "1");
    eventually("the donor lends", || donor.lender().is_some());
    let_it_run(&place, 6);
    finish(&place, program);
}

#[test]
fn pages_travel_to_a_donor_on_another_host_which_may_be_killed() {
    let Some(hosts) = Hosts::new(2) else {
        return;
    };
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    hosts.connect([0, 1], 7, 1500);
    let in_host = |host: usize, args: &[&str]| hosts.inside(host, &place.command(args));
    let donate = ["serve", "--listen", "10.0.7.2", "--json", "--donate", "64M"];
    let donor = Donor::of(in_host(1, &donate));
    let args = far_args(&donor.store, "1");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let program = Running::of(in_host(0, &args));
    eventually("the donor lends", || donor.lender().is_some());
    let_it_run(&place, 6);
    donor.kill_lender();
    let_it_run(&place, 6);
    let [put, got, _] = finish(&place, program);
    assert!(put > 500 && got > 100, "{put} put, {got} got");
}

#[test]
fn a_shell_whose_donors_come_while_it_uses_pipes_reads_what_was_written() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let donor = Donor::first(&place, "64M");
    let donors = format!("--donors={}", donor.store);
    for _ in 0..5 {
        let text = "ls / | wc -l >rows; x=$(seq 1 200000); echo ${#x}";
        let args = ["far", "--local", "4M", &donors, "--", "bash", "-c", text];
        assert_eq!(place.run(&args).code(0).out(), "1288894\n");
    }
}

#[test]
fn donors_that_cannot_serve_are_told_before_the_program_starts() {
    let place = Place::new();
    let far = |options: &[&str]| {
        let args = [&["far", "--local", "8M"], options, &["--", "true"]].concat();
        place.run(&args)
    };
    let donor = Donor::first(&place, "64M");
    let donors = format!("--donors={}", donor.store);
    far(&[&donors, "--copies", "2"]).code(1).says("--copies 2: 1 donors at");
    far(&[&donors, "--copies", "3"]).code(2);
    far(&["--copies", "2"]).code(2);
    far(&["--donors=nowhere"]).code(1).says("nowhere");
    far(&["--donors=mapwire://127.0.0.1:1"]).code(1).says("nothing answers");
    // Made as the donor's is, but another one.
    let other = place.folder.join("other").to_str().unwrap().to_owned();
    place.run(&["serve", "--new-secret", "--secret-file", &other]).code(0);
    far(&[&donors, "--secret-file", &other]).code(1).says("secret");
    let none = place.folder.join("none").to_str().unwrap().to_owned();
    far(&[&donors, "--secret-file", &none]).code(1).says("none");
}

#[test]
fn sizes_that_cannot_be_donated_are_told_with_their_values() {
    let place = Place::new();
    let serve = |size: &str| place.run(&["serve", "--listen", "127.0.0.1:0", "--donate", size]);
    serve("0").code(2).says("--donate 0: too little");
    serve("4095").code(2).says("too little");
    serve("1024T").code(2).says("this host has");
    serve("much").code(2).says("--donate");
    place.run(&["serve", "--idle-only"]).code(2).says("--donate");
    place.run(&["lend", "--pages", "1", "--of", "1"]).code(2).says("mapwire serve --donate");
}
