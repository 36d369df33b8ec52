//! Far memory that a program asks for.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;

use mapwire::{ErrorKind, Far, FarSlice};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Far memory with a MiB in RAM. `None`, and a word of it: userfaultfd is refused here.
fn open() -> Option<Far> {
    match Far::builder().local(MIB as u64).open() {
        Ok(far) => Some(far),
        Err(error) if error.to_string().contains("userfaultfd") => {
            mapwire_testing::skip!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A file without a name, of `bytes` bytes that follow no order.
fn file(bytes: usize) -> (File, Vec<u8>) {
    let content = (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    let content: Vec<u8> = content.collect();
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("mapwire-far-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(true);
    let mut file = options.open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(&content).unwrap();
    (file, content)
}

#[test]
fn more_memory_than_is_in_ram_keeps_what_is_stored_to_it() {
    let Some(far) = open() else { return };
    let mut memory = far.alloc(8 * MIB + 5).unwrap();
    assert_eq!(memory.len(), 8 * MIB + 5);
    assert!(memory.iter().step_by(PAGE).all(|&byte| byte == 0));
    for (page, bytes) in memory.chunks_mut(PAGE).enumerate() {
        bytes.fill((page % 255) as u8 + 1);
    }
    for (page, bytes) in memory.chunks(PAGE).enumerate() {
        assert!(bytes.iter().all(|&byte| byte == (page % 255) as u8 + 1), "{page}");
    }
    let counts = far.statistics();
    assert_eq!(counts.limit_pages, 256);
    assert!(counts.resident_pages <= 256, "{counts}");
    assert!(counts.written_pages > 1500 && counts.fetched_pages > 1500, "{counts}");
    memory.discard(0..MIB).unwrap();
    assert!(memory[..MIB].iter().all(|&byte| byte == 0) && memory[MIB] == 2);
    memory.discard(8 * MIB..8 * MIB + 5).unwrap();
    assert_eq!(memory[8 * MIB..], [0; 5]);
    // The memory stands for as long as the slice does.
    drop(far);
    assert_eq!(memory[MIB], 2);
}

#[test]
fn threads_and_system_calls_use_it_as_any_memory() {
    let Some(far) = open() else { return };
    let mut memory = far.alloc(4 * MIB).unwrap();
    std::thread::scope(|scope| {
        for (number, part) in memory.chunks_mut(MIB).enumerate() {
            scope.spawn(move || part.fill(number as u8 + 1));
        }
    });
    let (mut to, _) = file(0);
    to.write_all(&memory).unwrap();
    let mut copy = far.alloc(4 * MIB).unwrap();
    to.read_exact_at(&mut copy, 0).unwrap();
    assert!(copy[..] == memory[..]);
}

#[test]
fn a_mapped_file_is_read_again_and_only_changes_are_stored() {
    let Some(far) = open() else { return };
    let (file, content) = file(6 * MIB + 100);
    let mut memory = far.map_file(&file).unwrap();
    let part = far.map_part(&file, MIB as u64, MIB + 7).unwrap();
    assert!(memory[..] == content[..] && part[..] == content[MIB..2 * MIB + 7]);
    assert_eq!(far.statistics().written_pages, 0);
    for at in (0..content.len()).step_by(64 * PAGE) {
        memory[at] ^= 0xff;
    }
    let changed = |at: usize| {
        if at.is_multiple_of(64 * PAGE) { 0xff } else { 0 }
    };
    for _ in 0..2 {
        assert!((0..content.len()).all(|at| memory[at] == content[at] ^ changed(at)));
    }
    let counts = far.statistics();
    assert!((20..=25).contains(&counts.written_pages), "{counts}");
    assert!(part[..] == content[MIB..2 * MIB + 7]);
    let mut now = vec![0; content.len()];
    file.read_exact_at(&mut now, 0).unwrap();
    assert!(now == content);
    let end = memory.len();
    memory.discard(0..end).unwrap();
    assert!(memory[..] == content[..]);
}

#[test]
fn sizes_and_files_that_cannot_be_are_told_with_their_values() {
    let said = |local| {
        let error = Far::builder().local(local).open().unwrap_err();
        (error.kind(), error.to_string())
    };
    for local in [0, 4095, 65_535] {
        let (kind, text) = said(local);
        assert_eq!(kind, ErrorKind::Argument);
        let says = format!("{local} bytes in RAM are too few for far memory: give `local` at least");
        assert!(text.starts_with(&says), "{text}");
    }
    let (kind, text) = said(u64::MAX);
    assert!(kind == ErrorKind::Limit && text.contains("beyond the address space"), "{text}");
    let error = Far::builder().local(1 << 20).disk("/no/such").open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::System);
    assert!(error.to_string().starts_with("cannot keep far memory in /no/such: "), "{error}");

    let Some(far) = open() else { return };
    let said = |done: Result<FarSlice, mapwire::Error>| {
        let error = done.unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = said(far.alloc(0));
    assert!(kind == ErrorKind::Argument && text.contains("0 bytes"), "{text}");
    for bytes in [1 << 48, usize::MAX] {
        let (kind, text) = said(far.alloc(bytes));
        assert!(kind == ErrorKind::Limit && text.contains(&bytes.to_string()), "{text}");
    }
    assert_eq!(far.alloc(1).unwrap().len(), 1);
    let (file, _) = file(2 * PAGE);
    for (offset, bytes, kind, says) in [
        (0, 2 * PAGE + 1, ErrorKind::Range, "8193 bytes at 0 pass the end, which is at 8192"),
        (u64::MAX, 1, ErrorKind::Range, "pass the end"),
        (8192, 0, ErrorKind::Argument, "0 bytes"),
        (5, 1, ErrorKind::Alignment, "offset 5 in the file"),
    ] {
        let (found, text) = said(far.map_part(&file, offset, bytes));
        assert!(found == kind && text.contains(says), "{text}");
    }
    let (kind, text) = said(far.map_file(&File::open("/dev/null").unwrap()));
    assert!(kind == ErrorKind::Argument && text.contains("0 bytes"), "{text}");
    let mut memory = far.alloc(PAGE).unwrap();
    let error = memory.discard(0..PAGE + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Range);
    assert!(memory.discard(PAGE..PAGE).is_ok());
}

#[test]
fn a_file_that_changes_under_the_program_is_not_taken_for_what_it_was() {
    const CHILD: &str = "FAR_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let Some(far) = open() else { return };
        let (file, content) = file(4 * MIB);
        let memory = far.map_file(&file).unwrap();
        assert!(memory[..] == content[..]);
        file.write_all_at(&[!content[0]], 0).unwrap();
        println!("read {}", memory[0]);
        return;
    }
    if open().is_none() {
        return;
    }
    let name = "a_file_that_changes_under_the_program_is_not_taken_for_what_it_was";
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.signal(), Some(7), "{text}");
    assert!(text.contains("the file that page 0 of region 0 is of was changed"), "{text}");
}
