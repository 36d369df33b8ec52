//! What UDP sockets take of the process: no memory after they are bound, and no descriptor after they are closed. One test after
//! another, since they count descriptors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use mapwire_transport::payload::Payload;
use mapwire_transport::udp::{Destination, Faults, Lossy, Udp, UdpConfig};

#[path = "../../../tests/allocations.rs"]
mod counting;

static TURN: Mutex<()> = Mutex::new(());

fn bind(ip: IpAddr) -> Udp {
    Udp::bind(&UdpConfig::new(vec![ip, ip])).unwrap()
}

/// Sends and receives in all ways there are.
fn exercise(from: &mut Udp, to: &mut Udp, lossy: &mut Lossy, payload: &[u8]) -> u32 {
    let address = to.addresses().next().unwrap();
    let connected = from.connect(0, address).unwrap();
    let mut come = 0;
    for (via, may_fragment) in [(0, false), (1, true), (connected, false)] {
        let destination = Destination { via, to: address, may_fragment };
        let mut batch = from.batch();
        for length in [1, 1, 600, 1400, 1400, 1400, 9, 60_000, 3000, 65_000] {
            let (first, second) = payload[..length].split_at(length / 2);
            batch.push(&destination, &payload[..30], Payload::two(first, second), &[]);
            let reserved = batch.reserve(&destination, length).unwrap();
            reserved.copy_from_slice(&payload[..length]);
        }
        // Too long, and to nobody.
        batch.push(&destination, payload, Payload::EMPTY, &[]);
        let nobody = Destination { via: 99, ..destination };
        batch.push(&nobody, payload, Payload::EMPTY, &[]);
        let outcome = batch.finish();
        assert_eq!((outcome.sent, outcome.too_long), (20, 2));
        for _ in 0..200 {
            come += u32::from(lossy.receive(to).is_some());
        }
    }
    let _ = from.max_bytes_towards(0, &address);
    come
}

#[test]
fn after_the_bind_nothing_is_allocated() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let payload = vec![7; 70_000];
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let (mut from, mut to) = (bind(ip), bind(ip));
        let faults = Faults { reorder: 100_000, ..Faults::default() };
        let mut lossy = Lossy::new(faults, 3);
        let before = counting::calls();
        let come = exercise(&mut from, &mut to, &mut lossy, &payload);
        assert_eq!(counting::calls() - before, 0);
        assert_eq!(come, 60);
    }
}

#[test]
fn closed_sockets_leave_no_descriptors() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let payload = vec![7; 70_000];
    let before = descriptors();
    for _ in 0..10 {
        let ip = Ipv4Addr::LOCALHOST.into();
        let (mut from, mut to) = (bind(ip), bind(ip));
        let mut lossy = Lossy::new(Faults::default(), 1);
        exercise(&mut from, &mut to, &mut lossy, &payload);
        let nowhere = vec![ip, Ipv4Addr::new(192, 0, 2, 1).into()];
        assert!(Udp::bind(&UdpConfig::new(nowhere)).is_err());
    }
    assert_eq!(descriptors(), before);
}
