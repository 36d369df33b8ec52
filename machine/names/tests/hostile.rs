//! The server under attack by strangers, and by clients that break the rules. It still serves others, and counts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire_names::protocol::{HELLO_BYTES, Hello, Release, VERSION, Verdict, WELCOME_BYTES, Welcome};
use mapwire_names::server::{Server, ServerStats};
use mapwire_names::store::MAX_VALUE_BYTES;
use mapwire_names::{NamesError, SharedSecret, Store, StoreAddress};

fn open(address: &StoreAddress, secret: &SharedSecret) -> Box<dyn Store> {
    mapwire_names::open(address, secret).unwrap()
}

struct Served {
    address: SocketAddr,
    stop: Option<OwnedFd>,
    thread: JoinHandle<ServerStats>,
}

fn secret() -> SharedSecret {
    SharedSecret::new([5; 32])
}

impl Served {
    fn start() -> Self {
        let mut server = Server::bind(([127, 0, 0, 1], 0).into(), &secret()).unwrap();
        let address = server.address().unwrap();
        let (reader, stop) = rustix::pipe::pipe().unwrap();
        // A pipe without a writer is readable.
        let thread = std::thread::spawn(move || {
            server.serve(reader.as_fd()).unwrap();
            server.stats()
        });
        Self { address, stop: Some(stop), thread }
    }

    fn stranger(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn client(&self) -> Box<dyn Store> {
        open(&format!("mapwire://{}", self.address).parse().unwrap(), &secret())
    }

    fn end(mut self) -> ServerStats {
        self.stop = None;
        self.thread.join().unwrap()
    }
}

/// Waits until the server closes the connection; returns its last output.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut said);
    said
}

fn hello() -> Hello {
    Hello { version: VERSION, release: Release::own(), handshake: [9; 48] }
}

#[test]
fn whoever_speaks_something_else_or_another_version_or_lacks_the_secret_is_told_and_ended() {
    let served = Served::start();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"mwnamex"] {
        let mut stream = served.stranger();
        stream.write_all(bytes).unwrap();
        assert_eq!(read_to_end(&mut stream), [0; 0]);
    }
    let mut other = hello();
    other.version = 99;
    for (hello, expected) in [(other, Verdict::Version), (hello(), Verdict::Secret)] {
        let mut stream = served.stranger();
        stream.write_all(&hello.emit()).unwrap();
        let said = read_to_end(&mut stream);
        let said: [u8; WELCOME_BYTES] = said.try_into().unwrap();
        let welcome = Welcome::parse(&said).unwrap();
        assert_eq!(welcome.verdict, expected);
        assert_eq!(welcome.release, Release::own());
    }
    let stats = served.end();
    assert_eq!((stats.malformed, stats.other_version, stats.wrong_secret), (3, 1, 1));
    assert_eq!((stats.welcomed, stats.requests), (0, 0));
}

#[test]
fn half_open_connections_are_few_and_do_not_keep_clients_out() {
    let served = Served::start();
    let mut kept = served.client();
    kept.grant().unwrap();
    let mut half: Vec<TcpStream> = (0..300).map(|_| served.stranger()).collect();
    for stream in &mut half[200..] {
        // The others have sent nothing.
        let _ = stream.write(&hello().emit()[..HELLO_BYTES - 1]);
    }
    let lease = kept.grant().unwrap();
    assert!(kept.keep(lease).unwrap());
    let mut late = served.client();
    assert!(late.create("k", b"v", lease).unwrap());
    // Strangers are gone after 5 s at the latest.
    for stream in &mut half {
        read_to_end(stream);
    }
    let stats = served.end();
    assert_eq!(stats.accepted, 302);
    assert!(stats.no_room >= 300 - 64, "{stats:?}");
    assert_eq!(stats.no_room + stats.idle, 300, "{stats:?}");
}

/// Records a client's first record, as anyone on the path can.
fn recorded_hello() -> [u8; HELLO_BYTES] {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("mapwire://{}", listener.local_addr().unwrap());
    let client = std::thread::spawn(move || {
        // Nobody answers it.
        let _ = open(&url.parse().unwrap(), &secret()).grant();
    });
    let mut hello = [0; HELLO_BYTES];
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut hello).unwrap();
    drop((stream, listener));
    client.join().unwrap();
    hello
}

#[test]
fn a_recorded_hello_makes_strangers_however_often_it_is_sent_again() {
    let served = Served::start();
    let hello = recorded_hello();
    let mut kept = served.client();
    kept.grant().unwrap();
    let mut replays = Vec::new();
    for _ in 0..300 {
        let mut stream = served.stranger();
        stream.write_all(&hello).unwrap();
        replays.push(stream);
    }
    let lease = kept.grant().unwrap();
    assert!(kept.keep(lease).unwrap());
    let mut late = served.client();
    assert!(late.create("k", b"v", lease).unwrap());
    let welcome = |stream: &mut TcpStream| {
        let mut said = [0; WELCOME_BYTES];
        let got = stream.read_exact(&mut said);
        got.is_ok() && matches!(Welcome::parse(&said).unwrap().verdict, Verdict::Welcome(_))
    };
    // The last is answered, as the server cannot know; an occasional byte does not keep it.
    let mut last = replays.pop().unwrap();
    assert!(welcome(&mut last));
    let is_ended = (0..300).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        last.write(&[0xff]).is_err()
    });
    assert!(is_ended);
    replays.iter_mut().for_each(|stream| {
        read_to_end(stream);
    });
    let stats = served.end();
    assert_eq!((stats.accepted, stats.welcomed), (302, 2), "{stats:?}");
    assert_eq!(stats.no_room + stats.idle, 300, "{stats:?}");
    assert!(stats.no_room >= 300 - 64, "{stats:?}");
}

#[test]
fn of_too_many_strangers_those_of_the_address_that_has_most_make_room() {
    let served = Served::start();
    let from = |last| {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&stream, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        connect(&stream, &served.address).unwrap();
        TcpStream::from(stream)
    };
    let mut early: Vec<TcpStream> = (2..12).map(from).collect();
    let flood: Vec<TcpStream> = (0..200).map(|_| from(99)).collect();
    // Still open: each still sends, and is answered.
    for stream in &mut early {
        stream.write_all(&hello().emit()).unwrap();
        let said: [u8; WELCOME_BYTES] = read_to_end(stream).try_into().unwrap();
        assert_eq!(Welcome::parse(&said).unwrap().verdict, Verdict::Secret);
    }
    drop(flood);
    let stats = served.end();
    assert_eq!(stats.wrong_secret, 10, "{stats:?}");
}

#[test]
fn a_flood_of_connections_has_no_effect_but_counters() {
    let served = Served::start();
    let (address, over) = (served.address, Arc::new(AtomicBool::new(false)));
    let count = Arc::new(AtomicU64::new(0));
    let (is_over, counted) = (Arc::clone(&over), Arc::clone(&count));
    let flood = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            // Some are open at a time, some send something.
            let mut streams = Vec::new();
            for at in 0..20 {
                if let Ok(mut stream) = TcpStream::connect(address) {
                    counted.fetch_add(1, Ordering::Relaxed);
                    if at % 2 == 0 {
                        let _ = stream.write(&hello().emit());
                    }
                    streams.push(stream);
                }
            }
        }
    });
    let mut done = 0;
    while done < 20 || count.load(Ordering::Relaxed) < 1000 {
        let mut client = served.client();
        let lease = client.grant().unwrap();
        assert!(client.create("k", b"v", lease).unwrap());
        client.revoke(lease).unwrap();
        done += 1;
    }
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let stats = served.end();
    assert_eq!(stats.requests, 3 * done);
    assert!(stats.wrong_secret > 10, "{stats:?}");
}

#[test]
fn a_client_that_floods_is_bounded_and_one_that_vanishes_leaves_nothing() {
    let served = Served::start();
    let mut greedy = served.client();
    let mut leases = Vec::new();
    let refused = loop {
        match greedy.grant() {
            Ok(lease) => leases.push(lease),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, NamesError::Full { .. }), "{refused}");
    assert_eq!(leases.len(), 64);
    let long = vec![0; MAX_VALUE_BYTES + 1];
    let refused = greedy.create("long", &long, leases[0]).unwrap_err();
    assert!(matches!(refused, NamesError::Full { .. }), "{refused}");
    greedy.create("short", b"", leases[0]).unwrap();
    drop(greedy);
    let mut other = served.client();
    assert_eq!(other.count("").unwrap(), 1, "its lease lasts");
    let begin = Instant::now();
    while other.count("").unwrap() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
    }
    served.end();
}
