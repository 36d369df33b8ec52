//! Requests: sends, put-signals and fetches that own their memory and are waited for later.

use mapwire::{ErrorKind, Export, Import, Node, Request, Rights};

use crate::harness::{Rank, job, pattern, refused};

/// Bytes of a request's part of the export.
const PART: usize = 8192;
/// As many requests as may be under way on the ring path.
const MOST: usize = 896;

/// What rank 0 exports: a signal of 0, then a pattern.
fn contents(bytes: usize) -> Vec<u8> {
    let mut contents = pattern(7, bytes);
    contents[..8].fill(0);
    contents
}

/// Exports it in both ways.
fn exported(rank: &Rank, bytes: usize, body: impl FnOnce(&[Export; 2])) {
    let node = rank.node();
    let buffers = [(); 2].map(|()| node.alloc(bytes).unwrap());
    for buffer in &buffers {
        buffer.write(0, &contents(bytes)).unwrap();
    }
    let [direct, ring] = &buffers;
    let exports = [
        node.export_buffer(direct).name("direct").start().unwrap(),
        node.export_buffer(ring).ring_only().name("ring").start().unwrap(),
    ];
    body(&exports);
}

fn imported(node: &Node) -> [Import; 2] {
    ["direct", "ring"].map(|name| node.import(0, name).rights(Rights::ALL).start().unwrap())
}

#[test]
fn many_requests_move_their_bytes_each_its_own_on_both_paths() {
    const COUNT: usize = 200;
    job(2)
        .run(|rank| {
            let length = |number: usize| match number % 4 {
                0 => number,
                1 => 100 + number,
                _ => 3000 + 20 * number,
            };
            if rank.number == 0 {
                exported(rank, (COUNT + 1) * PART, |exports| {
                    for export in exports {
                        export.wait_signal(0, COUNT as u64).unwrap();
                        for number in 0..COUNT {
                            let mut found = vec![0; length(number)];
                            export.read((PART * (number + 1)) as u64, &mut found).unwrap();
                            assert!(found == pattern(number as u64, length(number)), "{number}");
                        }
                    }
                    rank.meet("end");
                });
                return;
            }
            for import in imported(&rank.node()) {
                let mut fetched = Vec::new();
                for number in 0..COUNT {
                    let into = vec![0; length(number)];
                    fetched.push(import.fetch_async((PART * (number + 1)) as u64, into).unwrap());
                }
                let all = contents((COUNT + 1) * PART);
                for (number, request) in fetched.into_iter().enumerate() {
                    let bytes = request.wait().unwrap();
                    let at = PART * (number + 1);
                    assert!(bytes == all[at..at + length(number)], "{number}");
                }
                // Each signal is stored after its data, and after the signals before it.
                let sent: Vec<Request<Vec<u8>>> = (0..COUNT)
                    .map(|number| {
                        let data = pattern(number as u64, length(number));
                        let at = (PART * (number + 1)) as u64;
                        import.put_signal_async(data, at, 0, number as u64 + 1).unwrap()
                    })
                    .collect();
                while !sent.iter().all(Request::is_done) {}
                for (number, request) in sent.into_iter().enumerate() {
                    assert!(request.wait().unwrap() == pattern(number as u64, length(number)));
                }
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn requests_beyond_the_limit_are_refused_at_once_and_other_calls_go_on() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                exported(rank, PART, |_| rank.meet("end"));
                return;
            }
            let [direct, ring] = imported(&rank.node());
            for round in 0..3 {
                let mut requests = Vec::new();
                for number in 0..MOST {
                    let into = vec![0_u8; 8 + number % 64].into_boxed_slice();
                    requests.push(ring.fetch_async(number as u64, into).unwrap());
                }
                for _ in 0..3 {
                    let error = ring.fetch_async(0, vec![0; 8]).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Limit);
                    refused(Err::<(), _>(error), &["896", "wait for some"]);
                    refused(ring.send_async(vec![0; 500], 0).map(drop), &["896"]);
                }
                // What needs no request goes on.
                let mut into = vec![0; 5000];
                ring.fetch(1, &mut into).unwrap();
                assert!(into == contents(PART)[1..5001]);
                ring.send_async(contents(100), 0).unwrap().wait().unwrap();
                direct.fetch_async(0, vec![0; 500]).unwrap().wait().unwrap();
                // Those that are dropped make room as those that are waited for.
                let rest = requests.split_off(MOST / 2);
                if round == 1 {
                    drop(requests);
                } else {
                    for (number, request) in requests.into_iter().enumerate() {
                        let end = number + 8 + number % 64;
                        assert!(*request.wait().unwrap() == contents(PART)[number..end]);
                    }
                }
                ring.fetch_async(0, vec![0; 8]).unwrap().wait().unwrap();
                drop(rest);
            }
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn bad_requests_are_refused_before_they_begin() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                exported(rank, PART, |exports| {
                    rank.meet("end");
                    for export in exports {
                        let mut found = vec![0; PART];
                        export.read(0, &mut found).unwrap();
                        assert!(found == contents(PART));
                    }
                });
                return;
            }
            let node = rank.node();
            for import in imported(&node) {
                let parts = ["9000 bytes at 0", "8192"];
                refused(import.fetch_async(0, vec![0; 9000]).map(drop), &parts);
                refused(import.send_async(vec![0; 9000], 0).map(drop), &parts);
                refused(import.put_signal_async(vec![0; 9000], 0, 0, 1).map(drop), &parts);
                for length in [0, 8, 5000] {
                    let data = vec![1; length];
                    refused(import.put_signal_async(data.clone(), 0, 12, 1).map(drop), &["12", "multiple of 8"]);
                    refused(import.put_signal_async(data, 0, PART as u64, 1).map(drop), &["8 bytes at 8192"]);
                    refused(import.fetch_async(u64::MAX, vec![0; length + 1]).map(drop), &["pass the end"]);
                }
                let none = import.fetch_async(PART as u64, Vec::new()).unwrap();
                assert!(none.wait().unwrap().is_empty());
            }
            let store = node.import(0, "ring").rights(Rights::STORE);
            let store = store.start().unwrap();
            refused(store.fetch_async(0, vec![0; 8]).map(drop), &["store", "fetch"]);
            rank.meet("end");
        })
        .succeeds();
}

#[test]
fn a_request_that_a_revocation_meets_ends_with_that_error_or_whole() {
    job(2)
        .run(|rank| {
            if rank.number == 0 {
                let node = rank.node();
                let buffer = node.alloc(256 * PART).unwrap();
                buffer.write(0, &pattern(7, 256 * PART)).unwrap();
                let export = node.export_buffer(&buffer).ring_only().name("ring");
                let export = export.start().unwrap();
                rank.read("begun");
                export.revoke().unwrap();
                rank.meet("end");
                return;
            }
            let node = rank.node();
            let ring = node.import(0, "ring").rights(Rights::ALL).start().unwrap();
            let mut requests = Vec::new();
            let all = pattern(7, 256 * PART);
            let refusal = loop {
                let at = PART * (requests.len() % 255);
                match ring.fetch_async(at as u64, vec![0; PART + 1]) {
                    Ok(request) => requests.push((at, request)),
                    Err(error) => break error,
                }
                if requests.len() == 100 {
                    rank.note("begun", "");
                }
                if requests.len() == 800 {
                    // The revocation comes while they are under way, or between them.
                    for (at, request) in requests.drain(..) {
                        match request.wait() {
                            Ok(bytes) => assert!(bytes == all[at..=at + PART]),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Revoked, "{error}"),
                        }
                    }
                }
            };
            assert_eq!(refusal.kind(), ErrorKind::Revoked, "{refusal}");
            refused(Err::<(), _>(refusal), &["rank 0", "revoked", "ring"]);
            for (at, request) in requests {
                match request.wait() {
                    Ok(bytes) => assert!(bytes == all[at..=at + PART]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Revoked, "{error}"),
                }
            }
            rank.meet("end");
        })
        .succeeds();
}
