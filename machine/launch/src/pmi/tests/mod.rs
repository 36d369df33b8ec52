mod fake;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;

use super::Pmi;
use crate::{Event, LaunchError, Launcher};
use fake::{Speaks, serve};

const SOON: Duration = Duration::from_secs(20);

/// Runs `each` as every rank of a job.
fn job(speaks: Speaks, size: u32, each: fn(Box<Pmi>)) {
    std::thread::scope(|scope| {
        for (rank, socket) in (0..).zip(serve(speaks, size)) {
            scope.spawn(move || each(Box::new(Pmi::join(socket, rank, size, SOON).unwrap())));
        }
    });
}

fn value(rank: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32 * 7 + rank) as u8).collect()
}

#[test]
fn ranks_read_what_others_put_whatever_its_length() {
    for speaks in [Speaks::Refusing1, Speaks::Naming1, Speaks::Only2] {
        job(speaks, 4, |mut rank| {
            let lengths = [0, 1, 448, 511, 512, 5000, crate::MAX_VALUE_BYTES];
            let me = rank.rank();
            for length in lengths {
                rank.put(&format!("v{length}"), &value(me, length)).unwrap();
            }
            rank.fence(SOON).unwrap();
            for (peer, length) in (0..4).flat_map(|peer| lengths.map(|length| (peer, length))) {
                let got = rank.get(peer, &format!("v{length}"), SOON).unwrap();
                assert_eq!(got, Some(value(peer, length)));
            }
            assert_eq!(rank.get(1, "nothing", SOON).unwrap(), None);
            assert_eq!(rank.poll_event(), None);
            rank.finish(SOON).unwrap();
        });
    }
}

#[test]
fn the_version_is_the_newest_that_the_launcher_speaks() {
    for (speaks, expected) in [(Speaks::Refusing1, "PMI-1"), (Speaks::Naming1, "PMI-1"), (Speaks::Only2, "PMI-2")] {
        let socket = serve(speaks, 1).remove(0);
        let rank = Pmi::join(socket, 0, 1, SOON).unwrap();
        assert_eq!(rank.protocol(), expected);
    }
}

#[test]
fn bad_keys_values_and_ranks_are_refused_before_anything_is_sent() {
    let socket = serve(Speaks::Only2, 1).remove(0);
    let mut rank = Pmi::join(socket, 0, 1, SOON).unwrap();
    let long = "k".repeat(crate::MAX_KEY_BYTES + 1);
    for key in ["", "a b", "a;b", "a=b", "a\n", "ä", &long] {
        assert!(matches!(rank.put(key, b""), Err(LaunchError::Key(_))), "{key}");
        assert!(matches!(rank.get(0, key, SOON), Err(LaunchError::Key(_))), "{key}");
    }
    let long = vec![0; crate::MAX_VALUE_BYTES + 1];
    assert!(matches!(rank.put("k", &long), Err(LaunchError::TooLong { .. })));
    assert!(matches!(rank.get(1, "k", SOON), Err(LaunchError::NoRank { rank: 1, size: 1 })));
    rank.put("k", b"x").unwrap();
    assert!(matches!(rank.put("k", b"y"), Err(LaunchError::Refused { .. })));
    assert_eq!(rank.get(0, "k", SOON).unwrap(), Some(b"x".to_vec()));
}

#[test]
fn a_fence_that_a_rank_misses_ends_in_time_and_spends_the_connection() {
    for speaks in [Speaks::Naming1, Speaks::Only2] {
        let mut sockets = serve(speaks, 2);
        let mut rank = Pmi::join(sockets.remove(0), 0, 2, SOON).unwrap();
        let error = rank.fence(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, LaunchError::Timeout { .. }), "{error}");
        // Its answer may come now, and must not pass for that of another command.
        assert!(matches!(rank.put("k", b""), Err(LaunchError::Spent)));
        assert!(matches!(rank.get(0, "k", SOON), Err(LaunchError::Spent)));
        rank.abort(3, "a rank; is missing").unwrap();
    }
}

#[test]
fn a_launcher_that_ends_is_an_event_once_and_an_error_of_calls() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut theirs = theirs;
        let mut bytes = [0; 1024];
        for answer in [
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
            "cmd=maxes rc=0 vallen_max=1024\n",
            "cmd=my_kvsname kvsname=k\n",
        ] {
            let _ = theirs.read(&mut bytes).unwrap();
            theirs.write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut rank = Pmi::join(ours.into(), 0, 1, SOON).unwrap();
    server.join().unwrap();
    assert_eq!(rank.poll_event(), Some(Event::Aborted));
    assert_eq!(rank.poll_event(), None);
    assert!(matches!(rank.fence(SOON), Err(LaunchError::Closed)));
}

/// What joining gives when the launcher says `bytes` and closes its end.
fn join_hostile(bytes: &[u8], closes: bool) -> Result<Pmi, LaunchError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(bytes).unwrap();
    if closes {
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
    }
    Pmi::join(ours.into(), 0, 1, Duration::from_millis(30))
}

#[test]
fn what_makes_no_sense_is_an_error_that_shows_it() {
    let v1 = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
    let v2 = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
    let full = "    41cmd=fullinit-response;rc=0;rank=0;size=1;";
    let cases = [
        "\n".into(),
        "cmd=other\n".into(),
        "cmd=response_to_init rc=0 pmi_version=3\n".into(),
        "cmd=response_to_init rc=0\n".into(),
        "cmd=response_to_init rc=1\ncmd=response_to_init rc=1\n".into(),
        "x".repeat(5000),
        format!("{v1}cmd=maxes vallen_max=10\ncmd=my_kvsname kvsname=k\n"),
        format!("{v1}cmd=maxes\ncmd=my_kvsname kvsname={}\n", "k".repeat(300)),
        format!("{v1}cmd=maxes\ncmd=my_kvsname\n"),
        format!("{v2}999999"),
        format!("{v2}    -1"),
        format!("{v2}     0"),
        format!("{v2}    10cmd=other;"),
        format!("{v2}    41cmd=fullinit-response;rc=0;rank=1;size=2;"),
        format!("{v2}    29cmd=fullinit-response;rc=1;x;"),
        format!("{v2}{full}    35cmd=job-getid-response;jobid=;rc=0;"),
    ];
    for case in cases {
        let error = join_hostile(case.as_bytes(), true).unwrap_err();
        let is_named = matches!(error, LaunchError::Protocol { .. } | LaunchError::Refused { .. });
        assert!(is_named, "{}: {error}", &case[..case.len().min(200)]);
        assert!(error.to_string().len() < 400);
    }
    let silent = join_hostile(v1.as_bytes(), false).unwrap_err();
    assert!(matches!(silent, LaunchError::Timeout { .. }), "{silent}");
    let closed = join_hostile(b"cmd=resp", true).unwrap_err();
    assert!(matches!(closed, LaunchError::Closed), "{closed}");
}

proptest! {
    #[test]
    fn random_answers_never_panic_or_hang(
        prefix in prop::sample::select(vec![
            "",
            "cmd=response_to_init rc=0 pmi_version=1\n",
            "cmd=response_to_init rc=0 pmi_version=2\n",
            "cmd=response_to_init rc=0 pmi_version=2\n    41cmd=fullinit-response;rc=0;rank=0;size=1;",
        ]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let all = [prefix.as_bytes(), &bytes[..]].concat();
        let _ = join_hostile(&all, true);
    }
}
