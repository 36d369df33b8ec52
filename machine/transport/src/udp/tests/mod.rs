//! Over the loopback, between two `Udp` of this process.

mod faults;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::*;
use crate::payload::Payload;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn udp(addresses: &[IpAddr]) -> Udp {
    Udp::bind(&UdpConfig::new(addresses.to_vec())).unwrap()
}

fn address(udp: &Udp) -> SocketAddr {
    udp.addresses().next().unwrap()
}

fn towards(to: SocketAddr) -> Destination {
    Destination { via: 0, to, may_fragment: false }
}

/// Bytes that differ by datagram and place.
fn content(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed * 31 + at * 7 + at / 251) as u8).collect()
}

/// The next datagram with its socket and sender.
fn take(udp: &mut Udp) -> (usize, SocketAddr, Vec<u8>) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(datagram) = udp.receive() {
            let from = datagram.from.expect("senders are asked for");
            return (datagram.via, from, datagram.bytes.to_vec());
        }
        assert!(Instant::now() < end, "no datagram comes");
    }
}

fn only_sent(sent: u32) -> Outcome {
    Outcome { sent, ..Outcome::default() }
}

/// Sends datagrams of these lengths, each with a head of 20 bytes if it is longer, and expects them in order.
fn pass(from: &mut Udp, to: &mut Udp, lengths: &[usize]) {
    let destination = towards(address(to));
    let contents: Vec<_> = lengths.iter().enumerate().map(|(seed, &bytes)| content(seed, bytes)).collect();
    let mut batch = from.batch();
    for content in &contents {
        let (head, payload) = content.split_at(content.len().min(20));
        let (first, second) = payload.split_at(payload.len() / 3);
        batch.push(&destination, head, Payload::two(first, second), &[]);
    }
    assert_eq!(batch.finish(), only_sent(lengths.len() as u32));
    for (number, content) in contents.iter().enumerate() {
        let (via, sender, bytes) = take(to);
        assert_eq!((via, sender), (0, address(from)), "datagram {number}");
        assert!(bytes == *content, "datagram {number}");
    }
    assert!(to.receive().is_none());
}

#[test]
fn datagrams_of_one_length_arrive_in_order_over_both_families() {
    for ip in [V4, V6] {
        let (mut from, mut to) = (udp(&[ip]), udp(&[ip]));
        pass(&mut from, &mut to, &[8]);
        pass(&mut from, &mut to, &[1400; 150]);
        pass(&mut from, &mut to, &[64; 300]);
        pass(&mut from, &mut to, &[32_753; 5]);
        assert!(from.sockets[0].cuts(), "the kernel took none of the groups");
    }
}

#[test]
fn datagrams_of_mixed_lengths_arrive_as_they_were_sent() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let mixed = [1, 0, 0, 5, 5, 4, 5, 1400, 1400, 700, 1400, 1401, 20, 21, 513, 600, 600, 9000, 8999];
    pass(&mut from, &mut to, &mixed);
    pass(&mut from, &mut to, &[MAX_DATAGRAM_BYTES, 1, 32_754, 32_754, 65_000]);
}

#[test]
fn heads_payloads_and_tails_stand_in_this_order_whether_copied_or_lent() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let destination = towards(address(&to));
    let content = content(5, 20_000);
    let mut batch = from.batch();
    let cuts = [(0, 0), (0, 9), (7, 0), (7, 9)];
    for payload in [100, 4096, 4097, 15_000] {
        for (head, tail) in cuts {
            let (before, rest) = content[..head + payload + tail].split_at(head);
            let (lent, after) = rest.split_at(payload);
            batch.push(&destination, before, Payload::one(lent), after);
        }
    }
    assert_eq!(batch.finish(), only_sent(16));
    for payload in [100, 4096, 4097, 15_000] {
        for (head, tail) in cuts {
            let bytes = take(&mut to).2;
            assert!(bytes == content[..head + payload + tail], "{head} {payload} {tail}");
        }
    }
}

#[test]
fn datagrams_to_several_receivers_are_not_mixed_up() {
    let mut from = udp(&[V4]);
    let mut to = [udp(&[V4]), udp(&[V4]), udp(&[V4])];
    let addresses: Vec<_> = to.iter().map(address).collect();
    let contents: Vec<_> = (0..90).map(|seed| content(seed, 1000)).collect();
    let mut batch = from.batch();
    for (number, content) in contents.iter().enumerate() {
        let destination = towards(addresses[number / 2 % 3]);
        batch.push(&destination, &[], Payload::one(&content[..]), &[]);
    }
    assert_eq!(batch.finish(), only_sent(90));
    for (number, content) in contents.iter().enumerate() {
        assert!(take(&mut to[number / 2 % 3]).2 == *content, "{number}");
    }
}

#[test]
fn reserved_bytes_are_sent_as_they_were_written_between_pushed_ones() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let destination = towards(address(&to));
    let contents: Vec<_> = (0..200).map(|seed| content(seed, 3000)).collect();
    let mut batch = from.batch();
    for (number, content) in contents.iter().enumerate() {
        if number % 7 == 3 {
            batch.push(&destination, &content[..9], Payload::one(&content[9..]), &[]);
        } else {
            let into = batch.reserve(&destination, 3000).unwrap();
            into.copy_from_slice(content);
        }
    }
    assert_eq!(batch.finish(), only_sent(200));
    for (number, content) in contents.iter().enumerate() {
        assert!(take(&mut to).2 == *content, "{number}");
    }
}

#[test]
fn a_received_datagram_can_be_changed_without_harm_to_its_neighbours() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let destination = towards(address(&to));
    let content = content(1, 100);
    let mut batch = from.batch();
    for _ in 0..10 {
        batch.push(&destination, &content, Payload::EMPTY, &[]);
    }
    assert_eq!(batch.finish(), only_sent(10));
    let mut count = 0;
    while let Some(datagram) = to.receive() {
        assert_eq!(datagram.bytes, content);
        datagram.bytes.fill(0xEE);
        count += 1;
    }
    assert_eq!(count, 10);
}

/// A socket that is not told who sends, and asks datagrams themselves how long they are: their first byte, in pieces of 50.
fn unnamed() -> Udp {
    let mut udp =
        Udp::bind(&UdpConfig { first_length: Some(|joined| 50 * usize::from(joined[0])), ..UdpConfig::new(vec![V4]) })
            .unwrap();
    udp.set_naming(false);
    udp
}

fn next_length(udp: &mut Udp) -> Option<usize> {
    let datagram = udp.receive()?;
    assert_eq!(datagram.from, None);
    Some(datagram.bytes.len())
}

#[test]
fn joined_datagrams_are_told_apart_by_what_they_say_themselves() {
    let (mut from, mut to) = (udp(&[V4]), unnamed());
    let destination = towards(address(&to));
    let mut batch = from.batch();
    for _ in 0..10 {
        batch.push(&destination, &[2; 100], Payload::EMPTY, &[]);
    }
    batch.push(&destination, &[1; 50], Payload::EMPTY, &[]);
    assert_eq!(batch.finish(), only_sent(11));
    for _ in 0..10 {
        assert_eq!(next_length(&mut to), Some(100));
    }
    assert_eq!(next_length(&mut to), Some(50));
    assert_eq!(next_length(&mut to), None);
}

#[test]
fn a_datagram_that_lies_about_its_length_is_not_cut_into_more_than_the_kernel_joins() {
    let (mut from, mut to) = (udp(&[V4]), unnamed());
    let destination = towards(address(&to));
    for (bytes, first, pieces) in [(60_000, 0, 1), (60_000, 1, 1), (3200, 1, 64), (3201, 1, 1)] {
        let mut content = vec![0; bytes];
        content[0] = first;
        let mut batch = from.batch();
        batch.push(&destination, &content, Payload::EMPTY, &[]);
        assert_eq!(batch.finish(), only_sent(1));
        let lengths: Vec<usize> = core::iter::from_fn(|| next_length(&mut to)).collect();
        assert_eq!(lengths.len(), pieces, "{bytes} bytes that say {first}");
        assert_eq!(lengths.iter().sum::<usize>(), bytes);
    }
}

#[test]
fn each_of_several_sockets_receives_and_sends_by_its_own_address() {
    let mut many = udp(&[V4, V6, V4]);
    let mut others = [udp(&[V4]), udp(&[V6]), udp(&[V4])];
    let addresses: Vec<_> = many.addresses().collect();
    for turn in 0..3 {
        for (via, other) in others.iter_mut().enumerate() {
            let mut batch = other.batch();
            for _ in 0..40 {
                batch.push(&towards(addresses[via]), &[via as u8, turn], Payload::EMPTY, &[]);
            }
            assert_eq!(batch.finish(), only_sent(40));
        }
        let mut counts = [0; 3];
        for _ in 0..120 {
            let (via, from, bytes) = take(&mut many);
            assert_eq!(bytes, [via as u8, turn]);
            assert_eq!(from, address(&others[via]));
            counts[via] += 1;
        }
        assert_eq!(counts, [40; 3]);
        assert!(many.receive().is_none());
        let mut batch = many.batch();
        for (via, other) in others.iter().enumerate() {
            let destination = Destination { via, ..towards(address(other)) };
            batch.push(&destination, &[7], Payload::EMPTY, &[]);
        }
        assert_eq!(batch.finish(), only_sent(3));
        for (via, other) in others.iter_mut().enumerate() {
            assert_eq!(take(other), (0, addresses[via], vec![7]));
        }
    }
}

#[test]
fn datagrams_that_cannot_be_sent_are_counted_by_cause_and_the_others_sent() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let good = towards(address(&to));
    let long = vec![0; MAX_DATAGRAM_BYTES + 1];
    let mut batch = from.batch();
    batch.push(&good, &[1], Payload::EMPTY, &[]);
    // No socket of this index; an address of the other family; nobody has port 0.
    batch.push(&Destination { via: 9, ..good }, &[2], Payload::EMPTY, &[]);
    batch.push(&towards((V6, 1).into()), &[3], Payload::EMPTY, &[]);
    batch.push(&towards((V4, 0).into()), &[4], Payload::EMPTY, &[]);
    batch.push(&good, &[5], Payload::one(&long[1..]), &[]);
    assert!(batch.reserve(&good, MAX_DATAGRAM_BYTES + 1).is_none());
    batch.push(&good, &[6], Payload::EMPTY, &[]);
    let expected = Outcome {
        sent: 2,
        failed: 3,
        too_long: 2,
        shortened: Some(Shortened { via: 0, to: good.to, max_bytes: MAX_DATAGRAM_BYTES }),
        ..Outcome::default()
    };
    assert_eq!(batch.finish(), expected);
    assert_eq!(take(&mut to).2, [1]);
    assert_eq!(take(&mut to).2, [6]);
}

#[test]
fn a_batch_that_is_dropped_sends_nothing_of_what_waits() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let destination = towards(address(&to));
    {
        let content = content(0, 2000);
        let mut batch = from.batch();
        batch.push(&destination, &[], Payload::one(&content[..]), &[]);
        drop(batch);
    }
    pass(&mut from, &mut to, &[3]);
}

#[test]
fn a_socket_that_cannot_cut_messages_sends_their_datagrams_one_by_one() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    // The kernel refuses to cut for a socket that sends no checksums.
    sys::set_option(&from.sockets[0], libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    assert!(from.sockets[0].cuts());
    pass(&mut from, &mut to, &[1400, 1400, 1400, 1400, 900]);
    assert!(!from.sockets[0].cuts());
    pass(&mut from, &mut to, &[1400; 50]);
}

#[test]
fn a_datagram_longer_than_the_buffer_is_dropped() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    to.incoming = Incoming::with_buffers(&to.sockets, 4, 2048, None).unwrap();
    let destination = towards(address(&to));
    let content = content(0, 3000);
    for bytes in [2048, 2049, 3000, 7] {
        let mut batch = from.batch();
        batch.push(&destination, &[], Payload::one(&content[..bytes]), &[]);
        assert_eq!(batch.finish(), only_sent(1));
    }
    assert!(take(&mut to).2 == content[..2048]);
    assert!(take(&mut to).2 == content[..7]);
    assert!(to.receive().is_none());
}

#[test]
fn datagrams_pass_whether_or_not_the_kernel_polls_for_them() {
    let config = UdpConfig { busy_poll_us: Some(50), ..UdpConfig::new(vec![V4]) };
    let (mut from, mut to) = (udp(&[V4]), Udp::bind(&config).unwrap());
    pass(&mut from, &mut to, &[8; 3]);
}

#[test]
fn each_socket_has_buffers() {
    let udp = udp(&[V4, V6]);
    for socket in &udp.sockets {
        assert!(sockopt::socket_send_buffer_size(socket).unwrap() >= 4608);
        assert!(sockopt::socket_recv_buffer_size(socket).unwrap() >= 2304);
    }
    assert_eq!((udp.fds().len(), udp.sockets.len()), (2, 2));
}

#[test]
fn impossible_configurations_are_refused_by_name() {
    let refused = |config: &UdpConfig| Udp::bind(config).unwrap_err().to_string();
    let none = refused(&UdpConfig::new(vec![]));
    assert!(none.contains("name at least one"), "{none}");
    let many = refused(&UdpConfig::new(vec![V4; 9]));
    assert!(many.contains("9 addresses"), "{many}");
    let foreign = refused(&UdpConfig::new(vec![Ipv4Addr::new(192, 0, 2, 1).into()]));
    assert!(foreign.contains("192.0.2.1, any port"), "{foreign}");
    assert!(foreign.contains("`ip address`"), "{foreign}");
}

#[test]
fn a_connected_socket_sends_to_its_receiver_and_to_any_other() {
    let (mut from, mut to, mut other) = (udp(&[V4]), udp(&[V4]), udp(&[V4]));
    let via = from.connect(0, address(&to)).unwrap();
    assert_eq!(from.connect(0, address(&to)), Ok(via));
    let (content, far) = (content(1, 1200), address(&other));
    let mut batch = from.batch();
    for number in 0..100_u8 {
        let to = [address(&to), far][usize::from(number % 10 == 9)];
        let destination = Destination { via, ..towards(to) };
        batch.push(&destination, &[number], Payload::one(&content[..]), &[]);
    }
    assert_eq!(batch.finish(), only_sent(100));
    for number in 0..100_u8 {
        let receiver = if number % 10 == 9 { &mut other } else { &mut to };
        let (_, sender, bytes) = take(receiver);
        assert_eq!((sender.ip(), bytes[0]), (V4, number));
        assert!(bytes[1..] == content);
    }
    assert_eq!(from.connect(7, far), Err(Errno::BADF));
}

#[test]
fn a_receiver_that_was_away_gets_the_first_datagram_after_its_return() {
    let (mut from, to) = (udp(&[V4]), udp(&[V4]));
    let home = address(&to);
    let via = from.connect(0, home).unwrap();
    let destination = Destination { via, ..towards(home) };
    drop(to);
    // The kernel answers for the port that nobody has, so the next send fails at first.
    let mut batch = from.batch();
    batch.push(&destination, &[1], Payload::EMPTY, &[]);
    assert_eq!(batch.finish(), only_sent(1));
    let to = std::net::UdpSocket::bind(home).unwrap();
    let mut batch = from.batch();
    batch.push(&destination, &[2], Payload::EMPTY, &[]);
    assert_eq!(batch.finish(), only_sent(1));
    let mut bytes = [0; 2];
    assert_eq!(to.recv(&mut bytes).unwrap(), 1);
    assert_eq!(bytes[0], 2);
}

#[test]
fn more_connected_sockets_than_may_be_replace_the_first_ones() {
    let (mut from, mut to) = (udp(&[V4]), udp(&[V4]));
    let others = (1..=MAX_CONNECTED as u16).map(|port| (V4, port).into());
    let all = core::iter::once(address(&to)).chain(others);
    let vias: Vec<_> = all.map(|to| from.connect(0, to).unwrap()).collect();
    assert_eq!(vias[MAX_CONNECTED], vias[0]);
    let destination = Destination { via: vias[0], ..towards(address(&to)) };
    let mut batch = from.batch();
    batch.push(&destination, &[3], Payload::EMPTY, &[]);
    assert_eq!(batch.finish(), only_sent(1));
    assert_eq!(take(&mut to).2, [3]);
}

#[test]
fn the_loopback_passes_the_longest_datagrams() {
    let udp = udp(&[V4, V6]);
    let addresses: Vec<_> = udp.addresses().collect();
    assert_eq!(udp.max_bytes_towards(0, &addresses[0]), 65_507);
    // 65,536 bytes with the headers of IPv6 and UDP.
    assert_eq!(udp.max_bytes_towards(1, &addresses[1]), 65_488);
    // No route: what every path lets pass.
    assert_eq!(udp.max_bytes_towards(0, &addresses[1]), 1_232);
}
