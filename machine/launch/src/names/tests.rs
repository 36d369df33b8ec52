//! Members of a job in one process, over a server on a thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire_names::server::Server;
use mapwire_names::{SharedSecret, Store, StoreAddress};

use super::forming::{self, Waiting};
use super::record::{Claim, Incarnation, Record, ranks_text};
use super::{JobName, Names, News, Session, Wanted, jobs, signed};
use crate::detect::NamedJob;
use crate::{Event, LaunchError, Launcher};

const TIMEOUT: Duration = Duration::from_secs(20);

fn open(address: &StoreAddress, secret: &SharedSecret) -> Box<dyn Store> {
    mapwire_names::open(address, secret).unwrap()
}

/// What the file holds.
fn shared_bytes(job: &NamedJob) -> [u8; 32] {
    let text = std::fs::read_to_string(&job.secret_file).unwrap();
    let digits = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    std::array::from_fn(digits)
}

struct Served {
    address: StoreAddress,
    secret_file: std::path::PathBuf,
    _folder: tempfile::TempDir,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret_file = folder.path().join("secret");
        let secret = SharedSecret::create(&secret_file).unwrap();
        let mut server = Server::bind(([127, 0, 0, 1], 0).into(), &secret).unwrap();
        let address = format!("mapwire://{}", server.address().unwrap());
        let (reader, stop) = rustix::pipe::pipe().unwrap();
        // A pipe without a writer is readable.
        let thread = std::thread::spawn(move || server.serve(reader.as_fd()).unwrap());
        Self { address: address.parse().unwrap(), secret_file, _folder: folder, stop: Some(stop), thread: Some(thread) }
    }

    fn secret(&self) -> SharedSecret {
        SharedSecret::read(&self.secret_file).unwrap()
    }

    fn count(&self) -> u64 {
        open(&self.address, &self.secret()).count("").unwrap()
    }

    fn job(&self, size: u32, rank: Option<u32>) -> NamedJob {
        NamedJob {
            name: "job".parse().unwrap(),
            store: self.address.clone(),
            secret_file: self.secret_file.clone(),
            size,
            rank,
            incarnation: None,
        }
    }

    fn session(&self, size: u32, count: u32) -> Session {
        let wanted = wanted(size, count);
        Session::start(&self.address, self.secret(), wanted).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

fn wanted(size: u32, count: u32) -> Wanted {
    Wanted { name: "job".parse().unwrap(), size, count, first: None, timeout: TIMEOUT }
}

/// The next news but of a wait.
fn news(session: &Session) -> News {
    loop {
        match session.wait_for_news(Some(Instant::now() + TIMEOUT)) {
            Some(News::Waiting(_)) => {}
            Some(news) => return news,
            None => panic!("no news"),
        }
    }
}

fn formed(session: &Session) -> (Incarnation, std::ops::Range<u32>) {
    match news(session) {
        News::Formed(incarnation, ranks) => (incarnation, ranks),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranks_exchange_values_by_fences_and_leave_nothing() {
    let served = Served::start();
    for round in 0..2 {
        let ranks = (0..4u32).map(|at| {
            // One insists on its rank, which the others take last.
            let job = served.job(4, (at == 0).then_some(3));
            std::thread::spawn(move || {
                let mut rank = Names::join(&job, TIMEOUT).unwrap();
                let long = vec![rank.rank() as u8; 60_000];
                rank.put("card", &long).unwrap();
                rank.fence(TIMEOUT).unwrap();
                for peer in 0..4 {
                    let card = rank.get(peer, "card", TIMEOUT).unwrap().unwrap();
                    assert_eq!(card, vec![peer as u8; 60_000]);
                    assert_eq!(rank.get(peer, "none", TIMEOUT).unwrap(), None);
                }
                let secrets = [rank.secret().unwrap().0, shared_bytes(&job)];
                let all = open(&job.store, &SharedSecret::read(&job.secret_file).unwrap()).list("").unwrap();
                assert!(all.len() > 4 * 4, "{}", all.len());
                for (key, value) in all {
                    let shown = |secret: &[u8; 32]| value.windows(32).any(|it| it == secret);
                    assert!(!secrets.iter().any(shown), "{key}");
                }
                rank.put("late", b"").unwrap();
                rank.fence(TIMEOUT).unwrap();
                assert!(rank.get(3, "late", TIMEOUT).unwrap().is_some());
                assert_eq!(rank.poll_event(), None);
                let (number, secret) = (rank.rank(), rank.secret().unwrap());
                Box::new(rank).finish(TIMEOUT).unwrap();
                (number, secret)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let mut done: Vec<_> = ranks.into_iter().map(|it| it.join().unwrap()).collect();
        done.sort_by_key(|(number, _)| *number);
        for (number, (rank, secret)) in (0..).zip(&done) {
            assert_eq!(*rank, number, "round {round}");
            assert!(*secret == done[0].1);
        }
        assert_eq!(served.count(), 0);
    }
}

#[test]
fn a_member_that_dies_is_told_with_its_ranks_and_one_that_aborts_with_its_reason() {
    let served = Served::start();
    let (one, two) = (served.session(3, 1), served.session(3, 2));
    let (first, ranks) = formed(&one);
    let (second, others) = formed(&two);
    assert_eq!(first, second);
    assert_eq!(ranks.len() + others.len(), 3);
    assert!(ranks.end == others.start || others.end == ranks.start);
    drop(two);
    assert!(matches!(news(&one), News::Failed(gone, _) if gone == others));
    one.leave();
    assert_eq!(served.count(), 0, "who has died need not leave");

    let (one, two) = (served.session(2, 1), served.session(2, 1));
    formed(&one);
    assert_ne!(formed(&two).0, first, "another life");
    one.abort(9, "it must end\u{1b}[0m");
    let News::Aborted { code, message, .. } = news(&two) else {
        panic!();
    };
    assert_eq!((code, &*message), (9, "it must end[0m"));
    one.leave();
    two.leave();
    assert_eq!(served.count(), 0);
}

#[test]
fn a_rank_hears_of_the_death_of_another_also_while_it_is_at_a_fence() {
    let served = Served::start();
    let job = served.job(2, Some(1));
    let rank = std::thread::spawn(move || {
        let mut rank = Names::join(&job, TIMEOUT).unwrap();
        let error = rank.fence(TIMEOUT).unwrap_err();
        assert!(matches!(error, LaunchError::Ended(_)), "{error}");
        assert!(error.to_string().contains("rank 0 on host"), "{error}");
        assert_eq!(rank.poll_event(), Some(Event::Failed(0)));
    });
    let session = served.session(2, 1);
    formed(&session);
    drop(session);
    rank.join().unwrap();

    let (job, session) = (served.job(2, Some(1)), served.session(2, 1));
    let mut rank = Names::join(&job, TIMEOUT).unwrap();
    formed(&session);
    let error = rank.fence(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, LaunchError::Late { .. }), "{error}");
    assert!(error.to_string().contains("ranks 0 "), "{error}");
    rank.abort(3, "why").unwrap();
    assert!(matches!(news(&session), News::Aborted { code: 3, message, .. } if message.contains("why")));
}

/// Stops keeping anything at its first wait, as a process that is killed.
struct Killed(mpsc::Sender<()>, mpsc::Receiver<()>);

impl Waiting for Killed {
    fn pause(&mut self, _pause: Duration) -> bool {
        let _ = self.0.send(());
        // Until the test is over.
        let _ = self.1.recv();
        false
    }

    fn tell(&mut self, _missing: &str) {}
}

#[test]
fn a_member_that_died_while_it_waited_is_not_taken_for_one_of_the_next_life() {
    let served = Served::start();
    let (told, hears) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let (address, secret) = (served.address.clone(), served.secret());
    let dead = std::thread::spawn(move || {
        let mut store = open(&address, &secret);
        let mut killed = Killed(told, ends);
        forming::form(&mut *store, &secret, &wanted(2, 1), &mut killed).map(|it| it.is_none())
    });
    hears.recv().unwrap();
    let listed = jobs(&served.address, &served.secret()).unwrap();
    assert_eq!(listed[0].known.as_ref().unwrap().2.len(), 1);
    let (one, two) = (served.session(2, 1), served.session(2, 1));
    let (first, ranks) = formed(&one);
    let (second, others) = formed(&two);
    assert!(first == second && ranks != others);
    one.leave();
    two.leave();
    assert_eq!(served.count(), 0);
    drop(end);
    assert!(dead.join().unwrap().unwrap());
}

#[test]
fn values_that_were_not_signed_by_the_secret_are_refused() {
    let served = Served::start();
    let shared = served.secret();
    let mut store = open(&served.address, &shared);
    let lease = store.grant().unwrap();
    let key = SharedSecret::new([1; 32]).signing_key("values", &[]);
    let other_key = SharedSecret::new([2; 32]).signing_key("values", &[]);
    assert!(signed::create(&mut *store, &key, "k/a", b"v", lease).unwrap());
    assert_eq!(signed::get(&mut *store, &key, "k/a").unwrap().unwrap(), b"v");
    // Under another key of the store, by another secret, and by nobody.
    let value = store.get("k/a").unwrap().unwrap();
    store.create("k/moved", &value, lease).unwrap();
    store.create("k/short", b"v", lease).unwrap();
    let other = signed::get(&mut *store, &other_key, "k/a");
    for refused in [other, signed::get(&mut *store, &key, "k/moved"), signed::get(&mut *store, &key, "k/short")] {
        assert!(matches!(refused, Err(LaunchError::Forged { .. })), "{refused:?}");
    }
    assert!(signed::list(&mut *store, &key, "k/").is_err());
    // A record of another secret.
    let stranger = SharedSecret::new([9; 32]);
    let name: JobName = "job".parse().unwrap();
    let record = Record { incarnation: Incarnation::new([3; 16], lease), size: 2, release: "9.9.9".into() };
    let text = record.to_text();
    let key = forming::record_key(&stranger);
    signed::create(&mut *store, &key, &name.key(), text.as_bytes(), lease).unwrap();
    let Err(error) = Names::join(&served.job(2, None), TIMEOUT) else {
        panic!();
    };
    assert!(matches!(error, LaunchError::JobSecret { .. }), "{error}");
    store.revoke(lease).unwrap();
    // One of another release, which stays.
    let lease = store.grant().unwrap();
    let key = forming::record_key(&shared);
    signed::create(&mut *store, &key, &name.key(), text.as_bytes(), lease).unwrap();
    let session = served.session(2, 1);
    let error = loop {
        store.keep(lease).unwrap();
        let soon = Instant::now() + Duration::from_secs(1);
        if let Some(News::Broken(error)) = session.wait_for_news(Some(soon)) {
            break error;
        }
    };
    let text = error.to_string();
    assert!(text.contains("9.9.9") && text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

#[test]
fn what_is_written_is_read_and_what_is_malformed_is_not() {
    let id = Incarnation::new([0xab; 16], mapwire_names::LeaseId(7));
    assert_eq!(id.to_string().parse(), Ok(id.clone()));
    let record = Record { incarnation: id, size: 4, release: "1.2.3".into() };
    assert_eq!(Record::parse(record.to_text().as_bytes()), Some(record.clone()));
    let claim = Claim { ranks: 2..5, host: "node1".into(), process: 77, lease: mapwire_names::LeaseId(9) };
    assert_eq!(Claim::parse(claim.to_text().as_bytes()), Some(claim));
    for text in ["", "mapwire 1", "mapwire 1\nx\n4", "2 2\nh\n1\n1", "0 5000\nh\n1\n1", "0 1\n\u{1b}\n1\n1"] {
        assert_eq!(Record::parse(text.as_bytes()), None, "{text}");
        assert_eq!(Claim::parse(text.as_bytes()), None, "{text}");
    }
    assert_eq!(ranks_text([0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    assert_eq!(ranks_text([]), "");
}
