//! One suite for every store: the server of `mapwire serve`, and etcd where it is installed (Debian: etcd-server).

#[path = "../../../tests/etcd.rs"]
mod etcd;

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etcd::Etcd;
use mapwire_names::server::Server;
use mapwire_names::store::MAX_VALUE_BYTES;
use mapwire_names::{LEASE, NamesError, SharedSecret, Store, StoreAddress};

fn open(address: &StoreAddress, secret: &SharedSecret) -> Box<dyn Store> {
    mapwire_names::open(address, secret).unwrap()
}

/// A server on a thread, stopped on drop.
struct Served {
    address: StoreAddress,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(secret: &SharedSecret) -> Self {
        let mut server = Server::bind(([127, 0, 0, 1], 0).into(), secret).unwrap();
        let address = format!("mapwire://{}", server.address().unwrap());
        let (reader, stop) = rustix::pipe::pipe().unwrap();
        // A pipe without a writer is readable.
        let thread = std::thread::spawn(move || server.serve(reader.as_fd()).unwrap());
        Self { address: address.parse().unwrap(), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().unwrap().join().unwrap();
    }
}

fn secret() -> SharedSecret {
    SharedSecret::new([5; 32])
}

/// Runs `test` with a way to open each kind of store.
fn with_each(test: impl Fn(&dyn Fn() -> Box<dyn Store>)) {
    let served = Served::start(&secret());
    test(&|| open(&served.address, &secret()));
    if let Some(etcd) = Etcd::start() {
        test(&|| etcd.open());
    }
}

#[test]
fn a_key_is_created_once_by_whoever_comes_first_and_goes_with_the_lease() {
    with_each(|open| {
        let (mut a, mut b) = (open(), open());
        let (lease, other) = (a.grant().unwrap(), b.grant().unwrap());
        assert!(a.create("job/x", b"a", lease).unwrap());
        assert!(!b.create("job/x", b"b", other).unwrap());
        assert!(a.create("job/x", b"a", lease).unwrap(), "repeated");
        assert_eq!(b.get("job/x").unwrap().as_deref(), Some(&b"a"[..]));
        assert!(b.create("job/y", &[0xff; 3], lease).unwrap(), "a lease is anyone's");
        assert!(b.create("other", b"", other).unwrap());
        let all = [("job/x".to_owned(), b"a".to_vec()), ("job/y".to_owned(), vec![0xff; 3])];
        assert_eq!(a.list("job/").unwrap(), all);
        assert_eq!(a.count("job/").unwrap(), 2);
        a.revoke(lease).unwrap();
        a.revoke(lease).unwrap();
        assert_eq!(b.count("job/").unwrap(), 0);
        assert_eq!(b.get("job/x").unwrap(), None);
        assert_eq!(b.list("job/").unwrap(), []);
        assert_eq!(b.get("other").unwrap(), Some(Vec::new()));
        assert!(!a.keep(lease).unwrap());
        let late = a.create("late", b"", lease).unwrap_err();
        assert!(matches!(late, NamesError::NoLease { .. }), "{late}");
        b.revoke(other).unwrap();
    });
}

#[test]
fn what_nobody_keeps_is_gone_within_seconds_and_what_is_kept_stays() {
    with_each(|open| {
        let mut store = open();
        let (kept, left) = (store.grant().unwrap(), store.grant().unwrap());
        store.create("kept", b"", kept).unwrap();
        store.create("left", b"", left).unwrap();
        let begin = Instant::now();
        while store.get("left").unwrap().is_some() {
            assert!(store.keep(kept).unwrap());
            assert!(begin.elapsed() < 20 * LEASE, "it is still there");
            std::thread::sleep(Duration::from_millis(200));
        }
        let took = begin.elapsed();
        assert!(took + Duration::from_millis(1500) > LEASE, "{took:?}");
        assert!(store.keep(kept).unwrap());
        assert!(store.get("kept").unwrap().is_some());
        store.revoke(kept).unwrap();
    });
}

#[test]
fn long_values_and_many_of_them_come_back() {
    with_each(|open| {
        let mut store = open();
        let lease = store.grant().unwrap();
        let long: Vec<u8> = (0..MAX_VALUE_BYTES).map(|at| at as u8).collect();
        assert!(store.create("long/a", &long, lease).unwrap());
        assert!(store.create("long/b", &long, lease).unwrap());
        assert_eq!(store.get("long/a").unwrap(), Some(long.clone()));
        let keys: Vec<String> = (0..600).map(|at| format!("many/{at:04}")).collect();
        for key in &keys {
            assert!(store.create(key, key.as_bytes(), lease).unwrap());
            // On a busy machine all of them take longer than a lease lasts.
            assert!(store.keep(lease).unwrap());
        }
        let found: Vec<String> = store.list("many/").unwrap().into_iter().map(|it| it.0).collect();
        assert_eq!(found, keys);
        assert_eq!(store.list("long/").unwrap().len(), 2);
        assert_eq!(store.count("many/").unwrap(), 600);
        store.revoke(lease).unwrap();
        assert_eq!(store.count("").map_or(0, |all| all), 0);
    });
}

#[test]
fn of_clients_that_create_a_key_at_once_one_succeeds() {
    with_each(|open| {
        for round in 0..10 {
            let key = format!("race/{round}");
            let stores: Vec<_> = (0..4).map(|_| open()).collect();
            let won: Vec<bool> = std::thread::scope(|scope| {
                let tries = stores.into_iter().enumerate().map(|(at, mut store)| {
                    let key = &key;
                    scope.spawn(move || {
                        let lease = store.grant().unwrap();
                        store.create(key, &[at as u8], lease).unwrap()
                    })
                });
                let tries: Vec<_> = tries.collect();
                tries.into_iter().map(|it| it.join().unwrap()).collect()
            });
            assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
        }
    });
}

#[test]
fn no_server_and_something_else_are_told_apart() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for scheme in ["mapwire", "etcd"] {
        let address: StoreAddress = format!("{scheme}://{free}").parse().unwrap();
        let error = open(&address, &secret()).grant().unwrap_err();
        assert!(matches!(error, NamesError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(&free.to_string()), "{error}");
    }
    // An HTTP server that is not a store.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let there = listener.local_addr().unwrap();
    let web = std::thread::spawn(move || {
        for _ in 0..2 {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            let body = "404 page not found, said at some length so that it is longer than a welcome";
            let length = body.len();
            let text = format!("HTTP/1.1 404 Not Found\r\nContent-Length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(text.as_bytes());
        }
    });
    for (scheme, says) in [("mapwire", "not `mapwire serve`"), ("etcd", "JSON gateway")] {
        let address: StoreAddress = format!("{scheme}://{there}").parse().unwrap();
        let error = open(&address, &secret()).grant().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    web.join().unwrap();
}

#[test]
fn the_same_secret_is_needed() {
    let served = Served::start(&secret());
    let other = SharedSecret::new([6; 32]);
    let error = open(&served.address, &other).grant().unwrap_err();
    assert!(matches!(error, NamesError::WrongSecret { .. }), "{error}");
    assert!(open(&served.address, &secret()).grant().is_ok());
}

#[test]
fn a_call_goes_on_in_a_process_that_was_stopped_meanwhile() {
    use std::os::unix::process::CommandExt;
    // A server that answers after a second, to a process that is stopped and continued before.
    if std::env::var_os("MAPWIRE_TEST_STOPPED").is_some() {
        let address: StoreAddress = std::env::var("MAPWIRE_TEST_STOPPED").unwrap().parse().unwrap();
        open(&address, &secret()).grant().unwrap();
        return;
    }
    let mut server = Server::bind(([127, 0, 0, 1], 0).into(), &secret()).unwrap();
    let address = format!("mapwire://{}", server.address().unwrap());
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stores::a_call_goes_on_in_a_process_that_was_stopped_meanwhile"])
        .env("MAPWIRE_TEST_STOPPED", address)
        .process_group(0)
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    std::thread::sleep(Duration::from_millis(600));
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::CONT] {
        rustix::process::kill_process(pid, signal).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    let (reader, stop) = rustix::pipe::pipe().unwrap();
    let thread = std::thread::spawn(move || server.serve(reader.as_fd()).unwrap());
    assert!(child.wait().unwrap().success());
    drop(stop);
    thread.join().unwrap();
}
