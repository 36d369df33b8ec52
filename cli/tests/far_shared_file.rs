//! Programs under `mapwire far --files --donors` that map the same file at once, privately, and a file that changes under them.

use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::common::{Place, Running, eventually};
use crate::lending::{Donor, can_start, counts};

/// Pages of the file, of which 512 are in the RAM of each program.
const PAGES: usize = 4_000;

/// Pages whose content in the file changes under the programs.
const CHANGED: std::ops::Range<usize> = 1_000..1_400;

/// What the file holds at first, and after it was changed; and the program's mark of its own pages.
fn word(page: usize, at: usize, change: u64) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ change << 32 ^ at as u64
}

fn page(number: usize, change: u64) -> Vec<u8> {
    let words = (0..512).flat_map(|at| word(number, at, change).to_ne_bytes());
    words.collect()
}

/// A program that maps the file `data` and goes over its pages, until there is a file `stop`: it knows what each holds. It changes each
/// third page if it is to write, again and again. Pages of which the file changes are as at first or as they are now.
///
/// It closes all descriptors that it does not know, as daemons do: those of the file and of the way to donors stay.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t word(uint64_t page, uint64_t at, uint64_t change) {
    return (page + 1) * 0x9e3779b97f4a7c15u ^ change << 32 ^ at;
}

int main(int count, char **arguments) {
    (void)count;
    size_t pages = atol(arguments[2]), first = atol(arguments[3]), end = atol(arguments[4]);
    int writes = !strcmp(arguments[1], "writer");
    uint64_t *own = calloc(pages, sizeof *own);
    int file = open("data", O_RDONLY);
    uint64_t *memory = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) return 1;
    for (uint64_t round = 1; access("stop", F_OK) != 0; round++) {
        close_range(3, ~0u, 0);
        for (size_t page = 0; page < pages; page++) {
            uint64_t *words = memory + page * 512;
            uint64_t change = own[page];
            if (!change && page >= first && page < end && words[0] == word(page, 0, 1)) change = 1;
            for (size_t at = 0; at < 512; at++)
                if (words[at] != word(page, at, change)) {
                    fprintf(stderr, "page %zu, word %zu: %llx\n", page, at, (unsigned long long)words[at]);
                    return 3;
                }
            if (writes && page % 3 == round % 3) {
                own[page] = round + 1;
                for (size_t at = 0; at < 512; at++) words[at] = word(page, at, own[page]);
            }
        }
        char name[64], made[64];
        snprintf(name, sizeof name, "%s.rounds", arguments[1]);
        snprintf(made, sizeof made, "%s.new", arguments[1]);
        FILE *rounds = fopen(made, "w");
        fprintf(rounds, "%llu", (unsigned long long)round);
        fclose(rounds);
        rename(made, name);
    }
    puts("all pages are right");
    return 0;
}
"#;

fn build(place: &Place) -> String {
    let source = place.write("reads.c", PROGRAM);
    let program = place.folder.join("reads");
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-O1", "-o"]).arg(&program).arg(source);
    assert!(built.status().unwrap().success());
    program.to_str().unwrap().to_owned()
}

fn start(place: &Place, donor: &Donor, program: &str, role: &str) -> Running {
    let donors = format!("--donors={}", donor.store);
    let numbers = [PAGES, CHANGED.start, CHANGED.end].map(|number| number.to_string());
    let options = ["far", "--local", "2M", "--files", "--disk", ".", &donors];
    let line = [program, role, &numbers[0], &numbers[1], &numbers[2]];
    place.start(&[&options[..], &["--stats", "--"], &line].concat())
}

fn rounds(place: &Place, role: &str) -> u32 {
    let text = std::fs::read_to_string(place.folder.join(format!("{role}.rounds")));
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Waits until all programs have gone over their pages a few times more.
fn let_them_run(place: &Place) {
    let from = ROLES.map(|role| rounds(place, role));
    let go_on = || {
        let now = ROLES.map(|role| rounds(place, role));
        now.iter().zip(from).all(|(now, from)| *now >= from + 3)
    };
    eventually("all programs go on", go_on);
}

const ROLES: [&str; 2] = ["writer", "reader"];

fn prepare(place: &Place) -> (std::fs::File, Donor, [Running; 2]) {
    let program = build(place);
    let bytes: Vec<u8> = (0..PAGES).flat_map(|number| page(number, 0)).collect();
    let path = place.folder.join("data");
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let donor = Donor::first(place, "64M");
    let programs = ROLES.map(|role| start(place, &donor, &program, role));
    let_them_run(place);
    (file, donor, programs)
}

#[test]
fn programs_that_map_one_file_see_their_own_changes_and_those_of_the_file_as_it_is_now_or_was() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let (file, _donor, programs) = prepare(&place);
    for number in CHANGED {
        file.write_all_at(&page(number, 1), number as u64 * 4096).unwrap();
    }
    let_them_run(&place);
    place.write("stop", "");
    let done = programs.map(|program| program.wait().code(0));
    for done in &done {
        assert!(done.out().contains("all pages are right"), "{}", done.out());
    }
    // What a program changed went to the donor, and never to the file.
    let [put, got, _] = counts(&done[0]);
    assert!(put > 1_000 && got > 1_000, "{put} put, {got} got");
    let bytes = std::fs::read(place.folder.join("data")).unwrap();
    for (number, bytes) in bytes.chunks_exact(4096).enumerate() {
        let change = u64::from(CHANGED.contains(&number));
        assert!(bytes == page(number, change), "page {number} of the file");
    }
}

#[test]
fn a_file_that_is_cut_under_programs_raises_sigbus_behind_its_end_where_they_changed_nothing() {
    let place = Place::new();
    if !can_start(&place) {
        return;
    }
    let (file, _donor, programs) = prepare(&place);
    file.set_len(CHANGED.start as u64 * 4096).unwrap();
    let [writer, reader] = programs;
    reader.wait().code(-libc::SIGBUS);
    // It has changed each page, so that all of them are its own.
    let from = rounds(&place, "writer");
    eventually("the writer goes on", || rounds(&place, "writer") >= from + 3);
    place.write("stop", "");
    let done = writer.wait().code(0);
    assert!(done.out().contains("all pages are right"), "{}", done.out());
}
