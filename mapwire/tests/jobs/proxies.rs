//! Sends by proxy address: to whichever import has it.

use std::sync::atomic::{AtomicBool, Ordering};

use mapwire::{Error, ProxyAddress, ProxyError, Rights};

use crate::harness::{job, pattern, refused};

const LENGTH: usize = 3 * 4096 + 100;

#[test]
fn what_is_sent_to_a_proxy_address_lands_where_its_import_would_store_it() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let (direct, ring) = (node.alloc(LENGTH).unwrap(), node.alloc(LENGTH).unwrap());
                let exports = [
                    node.export_buffer(&direct).name("direct").start().unwrap(),
                    node.export_buffer(&ring).ring_only().name("ring").start().unwrap(),
                ];
                for (export, buffer) in exports.iter().zip([&direct, &ring]) {
                    assert_eq!(export.wait_signal(8, 7).unwrap(), 7);
                    let mut found = vec![0; LENGTH];
                    buffer.read(0, &mut found).unwrap();
                    let mut wanted = vec![0; LENGTH];
                    wanted[8..16].copy_from_slice(&7_u64.to_le_bytes());
                    wanted[33..43].copy_from_slice(&pattern(1, 10));
                    wanted[LENGTH - 5000..].copy_from_slice(&pattern(2, 5000));
                    assert!(found == wanted);
                }
                rank.meet("end");
            } else {
                let imports = ["direct", "ring"].map(|name| node.import(0, name).rights(Rights::ALL).start().unwrap());
                for (import, is_direct) in imports.iter().zip([true, false]) {
                    assert_eq!(import.is_direct(), is_direct);
                    assert_eq!(import.pointer(33, 10).is_some(), is_direct);
                    assert_eq!(import.pointer(1, LENGTH as u64), None);
                    let at = |offset| import.proxy_at(offset).unwrap();
                    assert_eq!(at(0), import.proxy_address());
                    assert_eq!(ProxyAddress::new(at(33).get()), at(33));
                    node.send_to(at(33), &pattern(1, 10)).unwrap();
                    node.send_to(at(LENGTH as u64), &[]).unwrap();
                    let end = pattern(2, 5000);
                    node.put_signal_to(at(LENGTH as u64 - 5000), &end, at(8), 7).unwrap();
                    for (offset, length) in [(33, 10), (LENGTH - 5000, 5000), (0, 0)] {
                        let (mut by_address, mut by_import) = (vec![0; length], vec![0; length]);
                        node.fetch_from(at(offset as u64), &mut by_address).unwrap();
                        import.fetch(offset as u64, &mut by_import).unwrap();
                        assert!(by_address == by_import);
                    }
                }
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn a_proxy_address_outside_every_import_is_refused_and_named() {
    job(1)
        .run(|rank| {
            let node = rank.node();
            let buffers = [node.alloc(LENGTH).unwrap(), node.alloc(LENGTH).unwrap()];
            let _exports: Vec<_> = [("direct", &buffers[0]), ("ring", &buffers[1])]
                .into_iter()
                .map(|(name, buffer)| {
                    let export = node.export_buffer(buffer).name(name);
                    if name == "ring" { export.ring_only().start().unwrap() } else { export.start().unwrap() }
                })
                .collect();
            let wild = |number: u64| {
                let address = ProxyAddress::new(number);
                let parts = [&*format!("proxy {number:#x}"), "is in no import"];
                refused(node.send_to(address, &[1]), &parts);
                refused(node.fetch_from(address, &mut [1]), &parts);
                refused(node.put_signal_to(address, &[1], address, 1), &parts);
            };
            [0, 1, 4096, u64::MAX].into_iter().for_each(wild);
            let direct = node.import(0, "direct").start().unwrap();
            let ring = node.import(0, "ring").start().unwrap();
            for import in [&direct, &ring] {
                let first = import.proxy_address();
                let end = import.proxy_at(LENGTH as u64).unwrap();
                refused(import.proxy_at(LENGTH as u64 + 1), &["pass the end"]);
                for (offset, length) in
                    [(0, LENGTH + 1), (LENGTH - 1, 2), (LENGTH, 1), (LENGTH + 1, 0), (LENGTH + 4000, 1)]
                {
                    let address = first.offset(offset as u64).unwrap();
                    let parts = [&*format!("{length} bytes at {address}"), "pass the end", &*end.to_string()];
                    let mut data = vec![1; length];
                    refused(node.send_to(address, &data), &parts);
                    refused(node.fetch_from(address, &mut data), &parts);
                    refused(node.put_signal_to(address, &data, first, 1), &parts);
                }
                refused(node.put_signal_to(first, &[1], end, 1), &["8 bytes at", "pass the end"]);
                refused(
                    node.put_signal_to(first, &[1], import.proxy_at(4).unwrap(), 1),
                    &["offset 4", "multiple of 8"],
                );
                node.fetch_from(first, &mut [1]).unwrap();
            }
            let (to, signal) = (direct.proxy_address(), ring.proxy_address());
            refused(node.put_signal_to(to, &[1], signal, 1), &[&*to.to_string(), &*signal.to_string(), "two imports"]);
            // Its addresses go with an import, and do not come back with the next.
            drop(direct);
            let again = node.import(0, "direct").start().unwrap();
            let parts = [&*to.to_string(), "has been dropped"];
            refused(node.send_to(to, &[1]), &parts);
            refused(node.put_signal_to(signal, &[1], to, 1), &parts);
            node.send_to(again.proxy_address(), &[1]).unwrap();
            // Nothing came of all that was refused.
            for (buffer, first) in buffers.iter().zip([1, 0]) {
                let mut found = vec![0; LENGTH];
                buffer.read(0, &mut found).unwrap();
                assert!(found[0] == first && found[1..].iter().all(|byte| *byte == 0));
            }
        })
        .succeeds();
}

#[test]
fn a_send_to_a_revoked_export_by_proxy_address_is_refused_by_its_name() {
    job(2)
        .run(|rank| {
            let node = rank.node();
            if rank.number == 0 {
                let buffer = node.alloc(LENGTH).unwrap();
                let direct = node.export_buffer(&buffer).name("direct").start().unwrap();
                let ring = node.export_buffer(&buffer).ring_only().name("ring").start().unwrap();
                rank.meet("imported");
                direct.revoke().unwrap();
                ring.revoke().unwrap();
                // Whoever imports this has heard of the revocations, which came before it.
                let _after = node.export_buffer(&buffer).name("after").start().unwrap();
                rank.meet("end");
            } else {
                let imports = ["direct", "ring"].map(|name| node.import(0, name).rights(Rights::ALL).start().unwrap());
                rank.meet("imported");
                let _after = node.import(0, "after").start().unwrap();
                for (import, name) in imports.iter().zip(["direct", "ring"]) {
                    let address = import.proxy_address();
                    let parts = ["rank 0", "revoked", name];
                    for length in [1, 300, 9000] {
                        let mut data = vec![1; length];
                        refused(node.send_to(address, &data), &parts);
                        refused(node.put_signal_to(address, &data, address, 1), &parts);
                        refused(node.fetch_from(address, &mut data), &parts);
                    }
                }
                rank.meet("end");
            }
        })
        .succeeds();
}

#[test]
fn an_import_dropped_while_threads_send_by_its_address_serves_them_or_says_so() {
    for name in ["direct", "ring"] {
        job(2)
            .called(name)
            .run(|rank| {
                let node = rank.node();
                if rank.number == 0 {
                    let buffer = node.alloc(LENGTH).unwrap();
                    let export = node.export_buffer(&buffer).name(name);
                    let _export =
                        if name == "ring" { export.ring_only().start().unwrap() } else { export.start().unwrap() };
                    rank.meet("end");
                    return;
                }
                for _ in 0..100 {
                    let import = node.import(0, name).start().unwrap();
                    let (address, at_it) = (import.proxy_address(), AtomicBool::new(false));
                    std::thread::scope(|scope| {
                        for length in [8, 5000] {
                            let (node, at_it) = (&node, &at_it);
                            scope.spawn(move || {
                                let data = vec![1; length];
                                let error = loop {
                                    match node.send_to(address, &data) {
                                        Ok(()) => at_it.store(true, Ordering::Relaxed),
                                        Err(error) => break error,
                                    }
                                };
                                let dropped = ProxyError::Dropped(address);
                                assert!(matches!(error, Error::Proxy(error) if error == dropped), "{error}");
                            });
                        }
                        while !at_it.load(Ordering::Relaxed) {
                            std::thread::yield_now();
                        }
                        drop(import);
                    });
                }
                rank.meet("end");
            })
            .succeeds();
    }
}
