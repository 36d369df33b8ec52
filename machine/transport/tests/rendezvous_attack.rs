//! The rendezvous among strangers: a broker whose clients send whatever they like, and a client whose broker does.

#[path = "../../../tests/random.rs"]
pub(crate) mod random;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use mapwire_transport::rendezvous::message::{MAX_BYTES, Refusal, ToBroker, ToRank};
use mapwire_transport::rendezvous::{Broker, Card, Client, Event, JobAddress, Secret};
use random::Random;
use rustix::fs::MemfdFlags;
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg, sendmsg, socket_with,
};

const RANKS: u32 = 3;
/// The rank that strangers leave alone.
const LATE: u32 = 2;

fn memory() -> OwnedFd {
    rustix::fs::memfd_create("attack", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap()
}

fn broker() -> Broker {
    Broker::new(&[0; RANKS as usize], Box::new(|_, _| Ok(memory()))).unwrap()
}

/// Where the broker of a job listens, and its token.
fn parts(address: &JobAddress) -> (SocketAddrUnix, [u8; 16]) {
    let text = address.to_string();
    let (name, token) = text.split_once(':').unwrap();
    let name = format!("mapwire-{name}");
    let digits = |at| u8::from_str_radix(&token[2 * at..2 * at + 2], 16).unwrap();
    (SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap(), std::array::from_fn(digits))
}

fn new_socket() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// Sends a record with descriptors, if there is room for it.
fn send(socket: &OwnedFd, record: &[u8], fds: &[OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = sendmsg(socket, &[IoSlice::new(record)], &mut control, flags);
}

/// The next record and its descriptors, if one waits.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = [0; 2 * MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, into, &mut control, flags).ok()?.bytes;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    (got > 0).then(|| (bytes[..got].to_vec(), fds))
}

/// At times flips a bit of a record, or changes its length.
fn spoil(random: &mut Random, record: &mut Vec<u8>) {
    match random.below(8) {
        0 => {
            let bit = random.below(8 * record.len() as u64) as usize;
            record[bit / 8] ^= 1 << (bit % 8);
        }
        1 => record.resize(1 + random.below(MAX_BYTES as u64 + 10) as usize, 0),
        _ => {}
    }
}

/// As many descriptors as the record carries, mostly.
fn descriptors(random: &mut Random, carries: bool) -> Vec<OwnedFd> {
    let count = match random.below(8) {
        0 => random.below(4),
        _ => u64::from(carries),
    };
    (0..count).map(|_| memory()).collect()
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Strangers that know the token attack a broker for at least `steps` steps, and until what steers `random` is spent. It stays
/// within bounds, nobody becomes the rank that they name with wrong tokens alone, that rank joins as ever, and no descriptor is left.
pub(crate) fn attack_broker(mut random: Random, steps: u64) {
    let before = open_descriptors();
    let mut broker = broker();
    let (place, token) = parts(broker.address());
    let mut now = Instant::now();
    let mut strangers: Vec<OwnedFd> = Vec::new();
    let (mut step, mut is_invited) = (0, false);
    while step < steps || !random.is_spent() {
        step += 1;
        match random.below(16) {
            0 | 1 if strangers.len() < 100 => {
                let stranger = new_socket();
                connect(&stranger, &place).unwrap();
                strangers.push(stranger);
            }
            2 if !strangers.is_empty() => {
                drop(strangers.swap_remove(random.below(strangers.len() as u64) as usize));
            }
            3 => now += Duration::from_millis(random.below(3000)),
            4 => broker.handle_rank_exited(random.below(8) as u32 % LATE, random.chance(50), now),
            5 => broker.handle_rank_stopped(random.below(4) as u32 % LATE),
            6 => broker.handle_rank_continued(random.below(4) as u32 % LATE),
            7 => strangers.iter().for_each(|stranger| {
                receive(stranger);
            }),
            _ if strangers.is_empty() => {}
            _ => {
                let rank = match random.below(8) {
                    0 => RANKS + random.below(3) as u32,
                    1 => u32::MAX,
                    _ => random.below(u64::from(LATE)) as u32,
                };
                let mut shown = token;
                let is_wrong = random.chance(10);
                shown[random.below(16) as usize] ^= u8::from(is_wrong);
                let message = match random.below(10) {
                    0..3 => ToBroker::Hello { rank: if is_wrong { LATE } else { rank }, pid: 1, token: shown },
                    3 | 4 => ToBroker::Connect { peer: rank },
                    5 | 6 => ToBroker::Pass { to: rank, tag: random.next() },
                    7 => ToBroker::Publish { card: Card::new(&random.next().to_le_bytes()).unwrap() },
                    _ => ToBroker::Leave,
                };
                let mut record = message.encode().to_vec();
                spoil(&mut random, &mut record);
                let fds = descriptors(&mut random, message.carries_fd());
                // A flipped bit may make it right.
                is_invited |= matches!(
                    ToBroker::parse(&record, fds.len()),
                    Ok(ToBroker::Hello { rank: LATE, token: shown, .. }) if shown == token
                );
                let to = random.below(strangers.len() as u64) as usize;
                send(&strangers[to], &record, &fds);
            }
        }
        broker.handle_ready(now);
        let again = broker.poll_at(now);
        assert!(again.is_none_or(|at| at > now), "it asks to be called for ever");
        assert!(broker.stats().joined <= u64::from(RANKS));
        assert!(is_invited || !broker.has_joined(LATE), "a wrong token is taken");
    }
    strangers.clear();
    for _ in 0..100 {
        now += Duration::from_secs(1);
        broker.handle_ready(now);
    }
    if !broker.has_joined(LATE) {
        let late = new_socket();
        connect(&late, &place).unwrap();
        let (rank, pid) = (LATE, 1);
        send(&late, &ToBroker::Hello { rank, pid, token }.encode(), &[]);
        broker.handle_ready(now);
        broker.handle_ready(now);
        assert!(broker.has_joined(LATE), "a late rank is kept out");
    }
    drop(broker);
    assert_eq!(open_descriptors(), before, "descriptors are left");
}

/// A client of a broker that sends whatever it likes, the true broker's records among it, for at least `steps` records and until
/// what steers `random` is spent. The client believes in no rank that the job does not have, it ends when the broker does, and no
/// descriptor is left.
pub(crate) fn attack_client(mut random: Random, steps: u64) {
    let before = open_descriptors();
    // What a true broker says to rank 0.
    let mut honest = broker();
    let (place, token) = parts(honest.address());
    let upstream = new_socket();
    connect(&upstream, &place).unwrap();
    let (rank, pid) = (0, std::process::id());
    send(&upstream, &ToBroker::Hello { rank, pid, token }.encode(), &[]);
    send(&upstream, &ToBroker::Connect { peer: 1 }.encode(), &[]);
    let pass = ToBroker::Pass { to: 0, tag: 7 };
    send(&upstream, &pass.encode(), &[memory()]);
    for _ in 0..4 {
        honest.handle_ready(Instant::now());
    }
    let address = JobAddress::random().unwrap();
    let listener = new_socket();
    bind(&listener, &parts(&address).0).unwrap();
    listen(&listener, 4).unwrap();
    let client = std::thread::spawn(move || {
        let wait = Duration::from_secs(5);
        let Ok(mut client) = Client::join(&address, 0, wait) else {
            return;
        };
        loop {
            match client.wait(wait) {
                Ok(Event::JobEnded) => break,
                Ok(Event::Message(
                    ToRank::Channel { peer: rank }
                    | ToRank::PeerGone { peer: rank }
                    | ToRank::Passed { from: rank, .. }
                    | ToRank::PassLost { to: rank, .. }
                    | ToRank::PassAgain { to: rank, .. }
                    | ToRank::Card { peer: rank, .. },
                    _,
                )) => assert!(rank < RANKS, "rank {rank} is believed to be in the job"),
                Ok(other) => panic!("{other:?} is no news"),
                Err(error) => panic!("a client does not see that its broker has gone: {error}"),
            }
        }
        assert!(client.poll_socket().is_none() && client.poll().is_none());
    });
    // A fuzzer has a timer, whose signal interrupts the call.
    let downstream = rustix::io::retry_on_intr(|| rustix::net::accept(&listener)).unwrap();
    let mut step = 0;
    while step < steps || !random.is_spent() {
        step += 1;
        let peer = random.below(5) as u32;
        // What lets a client join comes first, mostly.
        let genuine = random.chance(if step <= 2 { 90 } else { 50 });
        let (mut record, fds) = if genuine {
            let Some(genuine) = receive(&upstream) else {
                continue;
            };
            genuine
        } else {
            let message = match random.below(9) {
                0 => ToRank::Welcome { rank: 0, size: peer, secret: Secret([1; 32]) },
                1 => ToRank::Refused(Refusal::Taken),
                2 | 3 => ToRank::Channel { peer },
                4 => ToRank::PeerGone { peer },
                5 | 6 => ToRank::Passed { from: peer, tag: random.next() },
                7 => ToRank::Card { peer, card: Card::new(&random.next().to_le_bytes()).unwrap() },
                8 => ToRank::PassAgain { to: peer, tag: 1 },
                _ => ToRank::PassLost { to: peer, tag: 1 },
            };
            let fds = descriptors(&mut random, message.carries_fd());
            (message.encode().to_vec(), fds)
        };
        spoil(&mut random, &mut record);
        send(&downstream, &record, &fds);
    }
    drop((downstream, listener));
    client.join().expect("the client does not panic");
    drop((upstream, honest));
    assert_eq!(open_descriptors(), before, "descriptors are left");
}

/// One test, as descriptors are counted for the whole process.
#[cfg(test)]
#[test]
fn whatever_strangers_send_a_broker_serves_others_and_a_client_ends_and_no_descriptor_is_left() {
    for seed in 0..100 {
        attack_broker(Random::new(seed), 200);
        attack_client(Random::new(seed), 5);
    }
}
