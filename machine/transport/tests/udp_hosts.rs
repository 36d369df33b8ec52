//! UDP between hosts that are network namespaces: paths of other MTUs, routes that lead nowhere, neighbours that do not answer.
//! Needs root and the commands `ip`, `unshare` and `nsenter`; skipped without.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mapwire_transport::payload::Payload;
use mapwire_transport::udp::{Destination, Outcome, Shortened, Udp, UdpConfig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use mapwire_testing::namespaces::Hosts;

/// What is done inside a host.
trait Inside {
    fn within<T: Send>(&self, host: usize, call: impl FnOnce() -> T + Send) -> T;
    fn bind(&self, host: usize, address: &str) -> Udp;
}

impl Inside for Hosts {
    /// Calls a function in a host.
    fn within<T: Send>(&self, host: usize, call: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(self.network_of(host)).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network).unwrap();
                call()
            });
            inside.join().unwrap()
        })
    }

    fn bind(&self, host: usize, address: &str) -> Udp {
        let config = UdpConfig::new(vec![address.parse().unwrap()]);
        self.within(host, || Udp::bind(&config)).unwrap()
    }
}

fn address(udp: &Udp) -> SocketAddr {
    udp.addresses().next().unwrap()
}

/// Sends datagrams of these lengths from within `host`.
fn send(hosts: &Hosts, host: usize, from: &mut Udp, to: Destination, lengths: &[usize]) -> Outcome {
    let payload: Vec<u8> = (0..70_000).map(|at| (at / 7) as u8).collect();
    hosts.within(host, || {
        let mut batch = from.batch();
        for &bytes in lengths {
            batch.push(&to, &[], Payload::one(&payload[..bytes]), &[]);
        }
        batch.finish()
    })
}

/// The lengths of what comes until nothing has come for a while.
fn lengths(to: &mut Udp) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(200) {
        while let Some(datagram) = to.receive() {
            let is_whole = (0..).zip(&*datagram.bytes).all(|(at, &byte)| byte == (at / 7) as u8);
            assert!(is_whole, "{} bytes", datagram.bytes.len());
            lengths.push(datagram.bytes.len());
            last = Instant::now();
        }
    }
    lengths
}

/// Waits until datagrams come through: until both kernels have found each other.
fn meet(hosts: &Hosts, host: usize, from: &mut Udp, to: &mut Udp) -> Destination {
    let there = straight(address(to));
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        send(hosts, host, from, there, &[10]);
        if !lengths(to).is_empty() {
            return there;
        }
        assert!(Instant::now() < end, "no way to {}", there.to);
    }
}

fn straight(to: SocketAddr) -> Destination {
    Destination { via: 0, to, may_fragment: false }
}

#[test]
fn a_path_that_shrinks_is_told_and_what_was_cut_before_passes_in_fragments() {
    let Some(hosts) = Hosts::new(2) else { return };
    hosts.connect([0, 1], 1, 9000);
    for (ips, headers, least) in [(["10.0.1.1", "10.0.1.2"], 28, 576), (["fd00:1::1", "fd00:1::2"], 48, 1280)] {
        let (mut from, mut to) = (hosts.bind(0, ips[0]), hosts.bind(1, ips[1]));
        let there = meet(&hosts, 0, &mut from, &mut to);
        let passes = |from: &Udp| hosts.within(0, || from.max_bytes_towards(0, &there.to));
        assert_eq!(passes(&from), 9000 - headers);
        let long = 9000 - headers;
        let outcome = send(&hosts, 0, &mut from, there, &[long; 20]);
        assert_eq!((outcome.sent, outcome.too_long), (20, 0), "{outcome:?}");
        assert_eq!(lengths(&mut to), [long; 20]);

        hosts.run(0, &format!("ip link set to1 mtu {least}"));
        let max_bytes = least - headers;
        assert_eq!(passes(&from), max_bytes);
        let outcome = send(&hosts, 0, &mut from, there, &[max_bytes + 1, max_bytes, long, long]);
        let shortened = Some(Shortened { via: 0, to: there.to, max_bytes });
        let (sent, too_long) = (1, 3);
        let expected = Outcome { sent, too_long, shortened, ..Outcome::default() };
        assert_eq!(outcome, expected);
        assert_eq!(lengths(&mut to), [max_bytes]);
        let cut_before = Destination { may_fragment: true, ..there };
        let outcome = send(&hosts, 0, &mut from, cut_before, &[long, long, 100]);
        assert_eq!((outcome.sent, outcome.too_long), (3, 0), "{outcome:?}");
        assert_eq!(lengths(&mut to), [long, long, 100]);
        let outcome = send(&hosts, 0, &mut from, there, &[long, 50]);
        assert_eq!((outcome.sent, outcome.too_long), (1, 1), "fragments others");
        hosts.run(0, "ip link set to1 mtu 9000");
        if least < 1280 {
            // Below 1280 bytes the kernel takes the addresses of IPv6 away.
            hosts.run(0, "ip address add fd00:1::1/64 dev to1 nodad");
        }
    }
}

#[test]
fn a_narrow_line_behind_a_router_is_told_by_icmp() {
    let Some(hosts) = Hosts::new(3) else { return };
    hosts.connect([0, 1], 1, 9000);
    hosts.connect([1, 2], 2, 1500);
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let set = || std::fs::write(format!("/proc/sys/net/{name}"), "1");
        if let Err(error) = hosts.within(1, set) {
            mapwire_testing::skip!("no forwarding: {error}");
            return;
        }
    }
    hosts.run(0, "ip route add default via 10.0.1.2");
    hosts.run(0, "ip -6 route add default via fd00:1::2");
    hosts.run(2, "ip route add default via 10.0.2.2");
    hosts.run(2, "ip -6 route add default via fd00:2::2");
    for (ips, headers) in [(["10.0.1.1", "10.0.2.3"], 28), (["fd00:1::1", "fd00:2::3"], 48)] {
        let (mut from, mut to) = (hosts.bind(0, ips[0]), hosts.bind(2, ips[1]));
        let there = meet(&hosts, 0, &mut from, &mut to);
        let passes = |from: &Udp| hosts.within(0, || from.max_bytes_towards(0, &there.to));
        assert_eq!(passes(&from), 9000 - headers);
        // The router drops it and says why.
        assert_eq!(send(&hosts, 0, &mut from, there, &[5000]).sent, 1);
        assert_eq!(lengths(&mut to), []);
        assert_eq!(passes(&from), 1500 - headers);
        let outcome = send(&hosts, 0, &mut from, there, &[5000, 1500 - headers]);
        let max_bytes = outcome.shortened.map(|path| path.max_bytes);
        assert_eq!((outcome.sent, max_bytes), (1, Some(1500 - headers)));
        let cut_before = Destination { may_fragment: true, ..there };
        assert_eq!(send(&hosts, 0, &mut from, cut_before, &[5000]).sent, 1);
        assert_eq!(lengths(&mut to), [1500 - headers, 5000]);
    }
}

#[test]
fn datagrams_to_nowhere_are_counted() {
    let Some(hosts) = Hosts::new(2) else { return };
    hosts.connect([0, 1], 1, 1500);
    hosts.run(0, "ip route add unreachable 10.9.0.0/16");
    hosts.run(0, "ip route add prohibit 10.8.0.0/16");
    let mut from = hosts.bind(0, "10.0.1.1");
    let mut outcome = |to: &str| {
        let to = straight(SocketAddr::new(to.parse().unwrap(), 9));
        send(&hosts, 0, &mut from, to, &[1000; 3])
    };
    for nowhere in ["10.9.0.1", "10.7.0.1", "10.8.0.1"] {
        assert_eq!(outcome(nowhere).failed, 3, "{nowhere}");
    }
    assert_eq!(outcome("10.0.1.2").sent, 3);
    // The sender's own address goes.
    hosts.run(0, "ip address del 10.0.1.1/24 dev to1");
    let outcome = outcome("10.0.1.2");
    assert_eq!(outcome.failed, 3, "{outcome:?}");
}

#[test]
fn a_socket_whose_buffer_is_full_says_how_many_were_not_sent() {
    let Some(hosts) = Hosts::new(2) else { return };
    hosts.connect([0, 1], 1, 1500);
    let ip: IpAddr = "10.0.1.1".parse().unwrap();
    let config = UdpConfig { send_buffer_bytes: 1, ..UdpConfig::new(vec![ip]) };
    let mut from = hosts.within(0, || Udp::bind(&config)).unwrap();
    let mut to = hosts.bind(1, "10.0.1.2");
    // Datagrams wait in the sender's kernel while nobody answers for this address of the next hop.
    let absent = straight("10.0.1.99:9".parse().unwrap());
    let outcome = send(&hosts, 0, &mut from, absent, &[1400, 1300, 1400, 1300, 1400, 1300, 1400]);
    assert!(outcome.blocked > 0, "{outcome:?}");
    // In this batch as well, and nothing is tried for that socket once it is known.
    hosts.within(0, || {
        let mut batch = from.batch();
        for _ in 0..100 {
            batch.push(&absent, &[0; 1000], Payload::EMPTY, &[]);
            batch.push(&absent, &[0; 1001], Payload::EMPTY, &[]);
        }
        let outcome = batch.finish();
        assert_eq!((outcome.sent, outcome.blocked), (0, 200));
    });
    assert_eq!(outcome.sent + outcome.blocked, 7, "{outcome:?}");
    // Until the kernel gives up on that address.
    meet(&hosts, 0, &mut from, &mut to);
}

#[test]
fn long_streams_between_hosts_arrive_whole_and_in_order() {
    let Some(hosts) = Hosts::new(2) else { return };
    hosts.connect([0, 1], 1, 1500);
    for (ip, peer, headers) in [("10.0.1.1", "10.0.1.2", 28), ("fd00:1::1", "fd00:1::2", 48)] {
        let (mut from, mut to) = (hosts.bind(0, ip), hosts.bind(1, peer));
        let there = meet(&hosts, 0, &mut from, &mut to);
        let mut all = vec![1500 - headers; 300];
        all.extend([700, 700, 700, 699, 1400, 1400]);
        let outcome = send(&hosts, 0, &mut from, there, &all);
        assert_eq!(outcome.sent, 306, "{outcome:?}");
        assert_eq!(lengths(&mut to), all);
    }
}
