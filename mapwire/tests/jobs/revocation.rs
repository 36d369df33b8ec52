//! Exports that are taken back while importers hold them.

use std::time::{Duration, Instant};

use mapwire::{Error, Import, Rights};

use crate::harness::{job, pattern, refused};

const LENGTH: usize = 3 * 4096 + 100;

/// Sends until it is refused; the refusal, and how many sends went before it.
fn send_until_refused(import: &Import) -> (Error, u64) {
    let end = Instant::now() + Duration::from_secs(30);
    let mut sent = 0;
    loop {
        let size = [8, 300, 9000][(sent % 3) as usize];
        match import.send(&vec![0x77; size], 100) {
            Ok(()) => sent += 1,
            Err(error) => return (error, sent),
        }
        assert!(Instant::now() < end, "{sent} sends after the revocation");
    }
}

#[test]
fn a_revoked_export_is_refused_by_name_and_its_memory_changes_no_more() {
    for name in ["direct", "ring"] {
        job(2)
            .called(name)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(LENGTH).unwrap();
                    let mut export = node.export_buffer(&buffer).name(name);
                    if name == "ring" {
                        export = export.ring_only();
                    }
                    let export = export.start().unwrap();
                    export.write(0, &pattern(1, LENGTH)).unwrap();
                    // The importer sends all the time, before, during and after.
                    rank.meet("sending");
                    std::thread::sleep(Duration::from_millis(20));
                    let place = buffer.as_ptr();
                    export.revoke().unwrap();
                    let mut then = vec![0; LENGTH];
                    buffer.read(0, &mut then).unwrap();
                    assert_eq!(buffer.as_ptr(), place, "the buffer stays at its address");
                    // What nobody stored to is what it was.
                    assert!(then[..100] == pattern(1, LENGTH)[..100]);
                    assert!(then[9100..] == pattern(1, LENGTH)[9100..]);
                    buffer.write(200, &[5; 100]).unwrap();
                    then[200..300].fill(5);
                    rank.read("refused");
                    let mut now = vec![0; LENGTH];
                    buffer.read(0, &mut now).unwrap();
                    assert!(now == then, "a store came after the revocation");
                    // The name is free, and a new importer reaches the buffer where it is now.
                    let again = node.export_buffer(&buffer).name(name).start().unwrap();
                    again.wait_signal(8, 9).unwrap();
                    rank.meet("end");
                } else {
                    let import = node.import(0, name).rights(Rights::ALL).start().unwrap();
                    assert_eq!(import.is_direct(), name == "direct");
                    rank.meet("sending");
                    let (error, sent) = send_until_refused(&import);
                    assert!(sent > 0);
                    let text = error.to_string();
                    assert!(text.contains("rank 0") && text.contains(name), "{text}");
                    assert!(text.contains("revoked"), "{text}");
                    // However it is used, and whatever is asked.
                    let parts = ["rank 0", name, "revoked"];
                    refused(import.put_signal(&[1], 0, 8, 1), &parts);
                    refused(import.put_signal(&[1; 9000], 100, 8, 1), &parts);
                    refused(import.send_notify(&[1], 0), &parts);
                    refused(import.fetch(0, &mut [0; 100]), &parts);
                    refused(import.fetch(0, &mut [0; 9000]), &parts);
                    refused(import.send_async(vec![1; 9000], 0).map(drop), &parts);
                    rank.note("refused", "");
                    let again = node.import(0, name).start().unwrap();
                    assert!(again.is_direct());
                    again.put_signal(&[], 0, 8, 9).unwrap();
                    refused(import.send(&[1], 0), &parts);
                    rank.meet("end");
                }
            })
            .succeeds();
    }
}

#[test]
fn one_buffer_can_be_exported_twice_and_one_export_revoked() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(8192).unwrap();
                let first = node.export_buffer(&buffer).name("first").start().unwrap();
                let second = node.export_buffer(&buffer).name("second").start().unwrap();
                rank.meet("imported");
                first.revoke().unwrap();
                rank.meet("revoked");
                second.wait_signal(8, 3).unwrap();
                assert_eq!(buffer.load_u64(8).unwrap(), 3);
                rank.meet("end");
            } else {
                let first = node.import(0, "first").start().unwrap();
                let second = node.import(0, "second").start().unwrap();
                first.put_signal(&[], 0, 0, 1).unwrap();
                second.put_signal(&[], 0, 8, 2).unwrap();
                rank.meet("imported");
                rank.meet("revoked");
                refused(first.put_signal(&[], 0, 0, 7), &["first", "revoked"]);
                second.put_signal(&[], 0, 8, 3).unwrap();
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn an_exporter_that_left_is_named_by_the_next_send() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(LENGTH).unwrap();
                let direct = node.export_buffer(&buffer).name("direct").start().unwrap();
                let ring = node.export_buffer(&buffer).ring_only().name("ring").start().unwrap();
                rank.meet("imported");
                // Ends with its exports standing.
                std::mem::forget((direct, ring, node));
                std::process::exit(0);
            }
            let direct = node.import(0, "direct").rights(Rights::ALL).start().unwrap();
            let ring = node.import(0, "ring").rights(Rights::ALL).start().unwrap();
            rank.meet("imported");
            let end = Instant::now() + Duration::from_secs(20);
            for import in [&direct, &ring] {
                // The news may be on its way still.
                let error = loop {
                    match import.send(&[1; 3000], 0) {
                        Err(error) => break error.to_string(),
                        Ok(()) => assert!(Instant::now() < end),
                    }
                };
                assert!(error.contains("rank 0") && error.contains("gone"), "{error}");
                refused(import.fetch(0, &mut [0; 3000]), &["rank 0", "gone"]);
                refused(import.send_notify(&[0], 0), &["rank 0", "gone"]);
            }
            let late = node.import(0, "late").timeout(Duration::from_secs(20));
            refused(late.start().map(drop), &["0 is gone", "late"]);
        })
        .succeeds();
}
