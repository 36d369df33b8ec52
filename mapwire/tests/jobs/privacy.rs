//! What lies beside an export on the same page stays private.

use mapwire::{Buffer, Rights};

use crate::harness::{job, pattern, refused};

const SECRET: u8 = 0xc3;

/// Mapped ranges of this process whose name has `name` in it.
fn mappings(name: &str) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}

fn filled(buffer: &Buffer) {
    buffer.write(0, &vec![SECRET; buffer.len()]).unwrap();
}

#[test]
fn an_export_of_part_of_a_page_shows_and_changes_nothing_beside_it() {
    const PARTS: [(u64, u64); 5] = [(100, 200), (4095, 2), (0, 100), (8192, 4096), (4000, 5000)];
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                for (number, (offset, length)) in PARTS.into_iter().enumerate() {
                    let buffer = node.alloc(4 * 4096).unwrap();
                    filled(&buffer);
                    let export = node.export_buffer(&buffer).range(offset, length).unwrap();
                    let export = export.name(format!("part{number}")).start().unwrap();
                    rank.meet(&format!("stored{number}"));
                    let mut now = vec![0; buffer.len()];
                    buffer.read(0, &mut now).unwrap();
                    let (start, end) = (offset as usize, (offset + length) as usize);
                    assert!(now[start..end] == pattern(number as u64, length as usize));
                    assert!(now[..start].iter().all(|byte| *byte == SECRET));
                    assert!(now[end..].iter().all(|byte| *byte == SECRET));
                    drop(export);
                }
                // Beside an export of the stack or heap is whatever the program has there.
                let heap = vec![SECRET; 10_000];
                // SAFETY: the memory outlives the export.
                let export = unsafe { node.export_range(heap.as_ptr().cast_mut().add(5000), 10) };
                let _export = export.name("heap").start().unwrap();
                rank.meet("end");
            } else {
                for (number, (_, length)) in PARTS.into_iter().enumerate() {
                    let name = format!("part{number}");
                    let import = node.import(0, &name).rights(Rights::ALL);
                    let import = import.start().unwrap();
                    // Not mapped, so the MMU shows nothing at all; the exporter's NIC checks the rest.
                    assert!(!import.is_direct());
                    assert_eq!(mappings("mapwire-alloc"), [""; 0]);
                    assert_eq!(import.len(), length);
                    let mut found = vec![0; length as usize];
                    import.fetch(0, &mut found).unwrap();
                    assert!(found.iter().all(|byte| *byte == SECRET));
                    for (offset, length) in [(0, length + 1), (length, 1), (u64::MAX, 1)] {
                        let mut data = vec![0; length as usize];
                        refused(import.fetch(offset, &mut data), &["pass the end"]);
                        refused(import.send(&data, offset), &["pass the end"]);
                    }
                    import.send(&pattern(number as u64, length as usize), 0).unwrap();
                    import.fetch(0, &mut found).unwrap();
                    rank.meet(&format!("stored{number}"));
                }
                let import = node.import(0, "heap").rights(Rights::ALL).start().unwrap();
                assert!(!import.is_direct());
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn an_importer_on_the_direct_path_maps_the_buffers_pages_and_no_others() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffers: Vec<Buffer> = (0..3).map(|_| node.alloc(5000).unwrap()).collect();
                for buffer in &buffers {
                    filled(buffer);
                }
                let export = node.export_buffer(&buffers[1]).name("middle").start().unwrap();
                rank.meet("end");
                drop(export);
            } else {
                let import = node.import(0, "middle").rights(Rights::ALL).start().unwrap();
                assert!(import.is_direct());
                // Two pages of data, and the status page, which is for loads only.
                let mut pages = 0;
                for line in mappings("mapwire-alloc") {
                    let (range, rest) = line.split_once(' ').unwrap();
                    let (start, end) = range.split_once('-').unwrap();
                    let number = |text| usize::from_str_radix(text, 16).unwrap();
                    let bytes = number(end) - number(start);
                    pages += bytes / 4096;
                    assert!(rest.starts_with("rw-s") || (rest.starts_with("r--s") && bytes == 4096));
                }
                assert_eq!(pages, 3);
                drop(import);
                assert_eq!(mappings("mapwire-alloc"), [""; 0], "an import that is dropped is unmapped");
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn a_program_that_a_rank_starts_inherits_nothing_of_it() {
    for pinner in ["mlock", "io_uring"] {
        job(2)
            .called(pinner)
            .option("--pinner", pinner)
            .run(|rank| {
                let node = rank.node();
                let shared = rank.shared(&node);
                let buffer = node.alloc(4096).unwrap();
                let direct = node.export_buffer(&buffer).name("direct").start().unwrap();
                let ring = node.alloc(4096).unwrap();
                let ring = node.export_buffer(&ring).ring_only().name("ring").start().unwrap();
                let others = ["direct", "ring"].map(|name| {
                    let import = node.import(1 - rank.number, name).start().unwrap();
                    import.send(&[1; 2000], 0).unwrap();
                    import
                });
                let mut list = list_of(std::process::Command::new("ls").args(["-l", "/proc/self/fd"]));
                list.retain(|line| ["memfd", "anon_inode", "socket"].iter().any(|kind| line.contains(kind)));
                assert!(list.is_empty(), "{list:#?}");
                shared.barrier().unwrap();
                drop((others, direct, ring));
                shared.close().unwrap();
            })
            .succeeds();
    }
}

fn list_of(command: &mut std::process::Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Asks the kernel for the right to store into a mapped page.
fn gets_writable(address: *mut u8) -> bool {
    // SAFETY: the rights of a page that nothing of Rust lies in; its contents stay.
    unsafe { libc::mprotect(address.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

#[test]
fn the_kernel_keeps_importers_from_writing_what_they_may_only_read() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let [readable, both] = [0; 2].map(|_| node.alloc(4096).unwrap());
                let builder = node.export_buffer(&readable).name("readable");
                let _exports = (
                    builder.rights(Rights::FETCH).start().unwrap(),
                    node.export_buffer(&both).name("both").start().unwrap(),
                );
                readable.write(0, b"exporter").unwrap();
                rank.meet("written");
                rank.meet("end");
            } else {
                let [readable, both] = [("readable", Rights::FETCH), ("both", Rights::ALL)]
                    .map(|(name, rights)| node.import(0, name).rights(rights).start().unwrap());
                assert!(readable.is_direct() && both.is_direct());
                assert!(!gets_writable(readable.pointer(0, 1).unwrap()));
                assert!(gets_writable(both.pointer(0, 1).unwrap()));
                rank.meet("written");
                let mut found = [0; 8];
                readable.fetch(0, &mut found).unwrap();
                assert_eq!(&found, b"exporter");
                // The status pages, by which an exporter tells all importers of a revocation.
                let statuses: Vec<String> =
                    mappings("mapwire-alloc").into_iter().filter(|line| line.contains(" r--s ")).collect();
                assert_eq!(statuses.len(), 3, "{statuses:#?}");
                for line in statuses {
                    let start = line.split('-').next().unwrap();
                    let start = usize::from_str_radix(start, 16).unwrap();
                    assert!(!gets_writable(std::ptr::with_exposed_provenance_mut(start)));
                }
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn what_a_program_without_standard_streams_prints_reaches_nothing_of_mapwire() {
    for pinner in ["mlock", "io_uring"] {
        job(2)
            .called(pinner)
            .option("--pinner", pinner)
            .run(|rank| {
                for stream in 0..3 {
                    // SAFETY: nothing here uses the standard streams any more.
                    assert_eq!(unsafe { libc::close(stream) }, 0);
                }
                let node = rank.node();
                let shared = rank.shared(&node);
                let buffer = node.alloc(4096).unwrap();
                let _export = node.export_buffer(&buffer).name("inbox").start().unwrap();
                let import = node.import(1 - rank.number, "inbox").start().unwrap();
                import.send(&[1; 2000], 0).unwrap();
                shared.barrier().unwrap();
                for stream in 0..3 {
                    // SAFETY: asks about a number; no descriptor is touched.
                    let flags = unsafe { libc::fcntl(stream, libc::F_GETFD) };
                    assert_eq!(flags, -1, "descriptor {stream} is taken");
                }
                drop(import);
                shared.close().unwrap();
            })
            .succeeds();
    }
}
