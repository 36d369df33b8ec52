//! Memory of donors: programs that keep there what is not in RAM, and donors that die, lie, give memory back and come late.

mod common;
#[path = "../../tests/namespaces.rs"]
mod namespaces;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, Running, children, eventually, signal, this_program};
use namespaces::Hosts;
use rustix::process::Signal;

/// Pages that the program uses, of which 512 are in RAM.
const PAGES: usize = 6_000;

/// A `mapwire serve --donate`, which dies when it is dropped.
struct Donor {
    process: Child,
    store: String,
}

impl Donor {
    fn of(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let store = loop {
            let line = lines.next().expect("the donor began").unwrap();
            let said: serde_json::Value = serde_json::from_str(&line).unwrap();
            if said["event"] == "donating" {
                break said["names"].as_str().unwrap().to_owned();
            }
        };
        // What it prints must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, store }
    }

    /// With a store of names.
    fn first(place: &Place, size: &str) -> Self {
        let listen = ["--listen", "127.0.0.1:0", "--json", "--donate", size];
        Self::of(place.command(&[&["serve"][..], &listen].concat()))
    }

    /// Found by the store of another.
    fn beside(place: &Place, first: &Self, size: &str) -> Self {
        let names = ["--names", &first.store, "--json", "--donate", size];
        Self::of(place.command(&[&["serve"][..], &names].concat()))
    }

    /// The process that lends to the program.
    fn lender(&self) -> Option<i32> {
        children(self.process.id() as i32).first().copied()
    }

    fn kill_lender(&self) {
        let lender = self.lender().expect("a process that lends");
        signal(lender, Signal::KILL);
    }

    /// Overwrites all memory that is lent.
    fn lie(&self) {
        let lender = self.lender().expect("a process that lends");
        let folder = format!("/proc/{lender}/fd");
        let mut has_lied = false;
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let link = std::fs::read_link(entry.path()).unwrap_or_default();
            if !link.to_string_lossy().contains("mapwire-alloc") {
                continue;
            }
            let Ok(memory) = OpenOptions::new().write(true).open(entry.path()) else {
                continue;
            };
            let bytes = memory.metadata().unwrap().len();
            for page in 0..bytes / 4096 {
                has_lied |= memory.write_at(&[0xee; 4096], page * 4096).is_ok();
            }
        }
        assert!(has_lied, "the donor's memory was not found");
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What it stands for: `false`, and a word of it, where userfaultfd is refused.
fn can_start(place: &Place) -> bool {
    let library = Path::new(env!("CARGO_BIN_EXE_mapwire")).with_file_name("libmapwire_far.so");
    assert!(
        library.exists(),
        "{library:?} is missing: cargo build -p mapwire-far"
    );
    let done = place.run(&["far", "--local", "8M", "--", "true"]);
    if done.err().contains("userfaultfd") {
        println!("skipped: {}", done.err());
        return false;
    }
    done.code(0);
    true
}

/// The arguments of `mapwire far` for the program below.
fn far_args(store: &str, copies: &str) -> Vec<String> {
    let donors = format!("--donors={store}");
    let options = [
        "far", "--local", "2M", "--stats", &donors, "--copies", copies, "--disk", ".", "--",
    ];
    let program = this_program();
    let program = [
        program.to_str().unwrap(),
        "--exact",
        "pages_are_what_was_stored_last",
        "--ignored",
        "--nocapture",
    ];
    options
        .iter()
        .chain(&program)
        .map(|&word| word.to_owned())
        .collect()
}

fn start(place: &Place, store: &str, copies: &str) -> Running {
    let args = far_args(store, copies);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    place.start(&args)
}

/// What the program has written, as a number.
fn rounds(place: &Place) -> u32 {
    let text = std::fs::read_to_string(place.folder.join("rounds"));
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Waits until the program has gone over its pages `more` times.
fn let_it_run(place: &Place, more: u32) {
    let from = rounds(place);
    eventually("the program goes on", || rounds(place) >= from + more);
}

/// Has the program end, and says what it counted: pages put at donors, got from there, and missed.
fn finish(place: &Place, program: Running) -> [u64; 3] {
    place.write("stop", "");
    let done = program.wait().code(0);
    assert!(done.out().contains("all pages are right"), "{}", done.out());
    let err = done.err();
    let line = err
        .lines()
        .find(|line| line.trim_start().starts_with("donors  "));
    let words = line.unwrap_or_else(|| panic!("no word of donors: {err}"));
    let numbers = words.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
    let [put, got, missed] = numbers[..] else {
        panic!("{words}")
    };
    [put, got, missed]
}

/// The program: pages of which it knows what it stored, until it is told to stop.
#[test]
#[ignore = "a program that the tests start"]
fn pages_are_what_was_stored_last() {
    let word = |page: usize, version: u64, at: usize| {
        (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version << 32 ^ at as u64
    };
    let mut memory = vec![0_u64; PAGES * 512];
    let mut versions = vec![0_u64; PAGES];
    let mut random = 12_345_u64;
    let mut rounds = 0;
    let fill = |memory: &mut [u64], page: usize, version: u64| {
        for at in 0..512 {
            memory[page * 512 + at] = word(page, version, at);
        }
    };
    let check = |memory: &[u64], page: usize, version: u64| {
        for at in 0..512 {
            let found = memory[page * 512 + at];
            assert_eq!(
                found,
                word(page, version, at),
                "page {page}, version {version}, word {at}"
            );
        }
    };
    for page in 0..PAGES {
        fill(&mut memory, page, 0);
    }
    while !Path::new("stop").exists() {
        for _ in 0..PAGES / 4 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let page = (random >> 33) as usize % PAGES;
            check(&memory, page, versions[page]);
            if random >> 62 == 0 {
                versions[page] += 1;
                fill(&mut memory, page, versions[page]);
            }
        }
        rounds += 1;
        std::fs::write("rounds.new", format!("{rounds}")).unwrap();
        std::fs::rename("rounds.new", "rounds").unwrap();
    }
    for (page, &version) in versions.iter().enumerate() {
        check(&memory, page, version);
    }
    println!("all pages are right");
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
        eventually("another one lends", || {
            donor.lender().is_some() && donor.lender() != before
        });
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
    let donors = [&first, &second];
    for _ in 0..3 {
        eventually("both lend", || {
            donors.iter().all(|donor| donor.lender().is_some())
        });
        let_it_run(&place, 6);
        let lenders: Vec<i32> = donors.iter().filter_map(|donor| donor.lender()).collect();
        lenders
            .iter()
            .for_each(|&lender| signal(lender, Signal::KILL));
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
    let first = Donor::first(&place, "64M");
    let second = Donor::beside(&place, &first, "64M");
    let program = start(&place, &first.store, "2");
    let donors = [&first, &second];
    eventually("both lend", || {
        donors.iter().all(|donor| donor.lender().is_some())
    });
    let_it_run(&place, 4);
    second.kill_lender();
    let_it_run(&place, 8);
    first.kill_lender();
    let_it_run(&place, 8);
    let [put, got, _] = finish(&place, program);
    assert!(put > 500 && got > 100, "{put} put, {got} got");
}

#[test]
fn what_a_donor_changed_is_not_believed_and_comes_from_the_disk_or_the_other_donor() {
    for copies in ["1", "2"] {
        let place = Place::new();
        if !can_start(&place) {
            return;
        }
        let honest = Donor::first(&place, "64M");
        let liar = Donor::beside(&place, &honest, "64M");
        let program = start(&place, &honest.store, copies);
        eventually("both lend", || {
            honest.lender().is_some() && liar.lender().is_some()
        });
        let_it_run(&place, 6);
        for _ in 0..5 {
            liar.lie();
            let_it_run(&place, 1);
        }
        let [_, got, missed] = finish(&place, program);
        assert!(
            got > 1_000 && missed > 10,
            "{copies}: {got} got, {missed} missed"
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
        let placed = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--json",
            "--donate",
            "64M",
        ];
        let placed = [&placed[..], &["--directory", directory]].concat();
        let first = Donor::of(place.command(&placed));
        let placed = [
            "serve",
            "--names",
            &first.store,
            "--json",
            "--donate",
            "64M",
        ];
        let placed = [&placed[..], &["--directory", directory]].concat();
        let second = Donor::of(place.command(&placed));
        let args = far_args(&first.store, "1");
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.splice(1..1, ["--directory", directory]);
        let program = place.start(&args);
        eventually("both lend", || {
            first.lender().is_some() && second.lender().is_some()
        });
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
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--donate",
        "64M",
    ];
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
        &[
            "far",
            "--local",
            "8M",
            "--donors",
            "--directory",
            "moon",
            "--",
            "true",
        ],
        &["bench", "directory", "--placement", "moon"],
    ] {
        let done = place.run(args).code(2);
        assert!(
            done.err().contains("moon") && done.err().contains("host, nic-hm, nic-nm"),
            "{args:?}: {}",
            done.err()
        );
    }
    for args in [
        &["serve", "--directory", "host"][..],
        &["far", "--local", "8M", "--directory", "host", "--", "true"],
        &["bench", "lookup", "--rate", "5"],
        &["bench", "directory", "--seconds", "0"],
    ] {
        place.run(args).code(2);
    }
}

#[test]
fn a_donor_that_leaves_in_order_brings_what_it_has_elsewhere() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let first = Donor::first(&place, "64M");
    let mut second = Donor::beside(&place, &first, "64M");
    let program = start(&place, &first.store, "2");
    eventually("both lend", || {
        first.lender().is_some() && second.lender().is_some()
    });
    let_it_run(&place, 4);
    signal(second.process.id() as i32, Signal::TERM);
    let begun = Instant::now();
    assert_eq!(second.process.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(20));
    let_it_run(&place, 4);
    finish(&place, program);
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
    far(&[&donors, "--copies", "2"])
        .code(1)
        .says("--copies 2: 1 donors at");
    far(&[&donors, "--copies", "3"]).code(2);
    far(&["--copies", "2"]).code(2);
    far(&["--donors=nowhere"]).code(1).says("nowhere");
    far(&["--donors=mapwire://127.0.0.1:1"])
        .code(1)
        .says("nothing answers");
    // Made as the donor's is, but another one.
    let other = place.folder.join("other").to_str().unwrap().to_owned();
    place
        .run(&["serve", "--new-secret", "--secret-file", &other])
        .code(0);
    far(&[&donors, "--secret-file", &other])
        .code(1)
        .says("secret");
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
    place
        .run(&["serve", "--idle-only"])
        .code(2)
        .says("--donate");
    place
        .run(&["lend", "--pages", "1", "--of", "1"])
        .code(2)
        .says("mapwire serve --donate");
}
