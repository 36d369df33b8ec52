//! Donors, and a program that keeps its pages with them and knows what it stored.
#![allow(dead_code, unreachable_pub)] // Each test binary uses a part.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::common::{Done, Place, Running, children, eventually, signal, this_program};

/// Pages that the program uses, of which 512 are in RAM.
pub const PAGES: usize = 6_000;

/// A `mapwire serve --donate`, which dies when it is dropped.
pub struct Donor {
    pub process: Child,
    pub store: String,
}

impl Donor {
    pub fn of(mut command: Command) -> Self {
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
    pub fn first(place: &Place, size: &str) -> Self {
        let listen = ["--listen", "127.0.0.1:0", "--json", "--donate", size];
        Self::of(place.command(&[&["serve"][..], &listen].concat()))
    }

    /// Found by the store of another.
    pub fn beside(place: &Place, first: &Self, size: &str) -> Self {
        let names = ["--names", &first.store, "--json", "--donate", size];
        Self::of(place.command(&[&["serve"][..], &names].concat()))
    }

    /// The process that lends to the program.
    pub fn lender(&self) -> Option<i32> {
        children(self.process.id() as i32).first().copied()
    }

    pub fn kill_lender(&self) {
        let lender = self.lender().expect("a process that lends");
        signal(lender, Signal::KILL);
    }

    /// The files of memory of the process that lends.
    fn memories(&self) -> Vec<File> {
        let lender = self.lender().expect("a process that lends");
        let folder = format!("/proc/{lender}/fd");
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let memories = entries.filter(|entry| {
            let link = std::fs::read_link(entry.path()).unwrap_or_default();
            link.to_string_lossy().contains("mapwire-alloc")
        });
        let open = |path| OpenOptions::new().read(true).write(true).open(path);
        let memories: Vec<File> = memories.filter_map(|entry| open(entry.path()).ok()).collect();
        assert!(!memories.is_empty(), "the donor's memory was not found");
        memories
    }

    /// Overwrites all memory that is lent.
    pub fn lie(&self) {
        let mut has_lied = false;
        for memory in self.memories() {
            let bytes = memory.metadata().unwrap().len();
            for page in 0..bytes / 4096 {
                has_lied |= memory.write_at(&[0xee; 4096], page * 4096).is_ok();
            }
        }
        assert!(has_lied, "the donor's memory cannot be written to");
    }

    /// Calls `look` with each of the program's pages that the donor holds, and stores what that gives in its place.
    pub fn each_page(&self, mut look: impl FnMut(usize, u64, &[u8]) -> Option<Vec<u8>>) {
        for memory in self.memories() {
            let mut bytes = vec![0; memory.metadata().unwrap().len() as usize];
            let read = memory.read_at(&mut bytes, 0).unwrap();
            for (frame, bytes) in (0_u64..).zip(bytes[..read].chunks_exact(4096)) {
                if let Some((page, version)) = recognised(bytes)
                    && let Some(other) = look(page, version, bytes)
                {
                    memory.write_at(&other, frame * 4096).unwrap();
                }
            }
        }
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What it stands for: `false`, and a word of it, where userfaultfd is refused.
pub fn can_start(place: &Place) -> bool {
    let library = Path::new(env!("CARGO_BIN_EXE_mapwire")).with_file_name("libmapwire_far.so");
    assert!(library.exists(), "{library:?} is missing: cargo build -p mapwire-far");
    let done = place.run(&["far", "--local", "8M", "--", "true"]);
    if done.err().contains("userfaultfd") {
        mapwire_testing::skip!("{}", done.err());
        return false;
    }
    done.code(0);
    true
}

/// The arguments of `mapwire far` for the program below.
pub fn far_args(store: &str, copies: &str) -> Vec<String> {
    let donors = format!("--donors={store}");
    let options = ["far", "--local", "2M", "--stats", &donors, "--copies", copies, "--disk", ".", "--"];
    let program = this_program();
    let program =
        [program.to_str().unwrap(), "--exact", "lending::pages_are_what_was_stored_last", "--ignored", "--nocapture"];
    options.iter().chain(&program).map(|&word| word.to_owned()).collect()
}

pub fn start(place: &Place, store: &str, copies: &str) -> Running {
    let args = far_args(store, copies);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    place.start(&args)
}

/// What the program has written, as a number.
pub fn rounds(place: &Place) -> u32 {
    let text = std::fs::read_to_string(place.folder.join("rounds"));
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Waits until the program has gone over its pages `more` times.
pub fn let_it_run(place: &Place, more: u32) {
    let from = rounds(place);
    eventually("the program goes on", || rounds(place) >= from + more);
}

/// Has the program end, and says what it counted: pages put at donors, got from there, and missed.
pub fn finish(place: &Place, program: Running) -> [u64; 3] {
    place.write("stop", "");
    let done = program.wait().code(0);
    assert!(done.out().contains("all pages are right"), "{}", done.out());
    counts(&done)
}

/// What `--stats` says of pages put at donors, got from there, and missed.
pub fn counts(done: &Done) -> [u64; 3] {
    let err = done.err();
    let line = err.lines().find(|line| line.trim_start().starts_with("donors  "));
    let words = line.unwrap_or_else(|| panic!("no word of donors: {err}"));
    let numbers = words.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
    let [put, got, missed] = numbers[..] else { panic!("{words}") };
    [put, got, missed]
}

/// Multiplies a page's number, so that words of pages differ in all bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// What the program stores at word `at` of a page.
fn word(page: usize, version: u64, at: usize) -> u64 {
    (page as u64 + 1).wrapping_mul(FACTOR) ^ version << 32 ^ at as u64
}

/// The page and its version, if these bytes are one of the program's.
fn recognised(bytes: &[u8]) -> Option<(usize, u64)> {
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let words: Vec<u64> = words.collect();
    if words[0] ^ words[1] != 1 {
        return None;
    }
    // The low half of the first word tells of the page.
    let page = (0..PAGES).find(|&page| word(page, 0, 0) as u32 == words[0] as u32)?;
    let version = (words[0] ^ word(page, 0, 0)) >> 32;
    let is_whole = (0..512).all(|at| words[at] == word(page, version, at));
    is_whole.then_some((page, version))
}

/// The program: pages of which it knows what it stored, until it is told to stop.
#[test]
#[ignore = "a program that the tests start"]
fn pages_are_what_was_stored_last() {
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
            assert_eq!(found, word(page, version, at), "page {page}, version {version}, word {at}");
        }
    };
    for page in 0..PAGES {
        fill(&mut memory, page, 0);
    }
    while !Path::new("stop").exists() {
        let changes = !Path::new("reads").exists();
        for _ in 0..PAGES / 4 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = (random >> 33) as usize % PAGES;
            check(&memory, page, versions[page]);
            if changes && random >> 62 == 0 {
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
