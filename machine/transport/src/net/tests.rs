//! What a forked child may do with the sessions of its parent: nothing.

use std::time::{Duration, Instant};

use mapwire_host::waiting::now_ns;
use mapwire_wire::NodeId;

use super::*;
use crate::payload::Payload;

const SECRET: Secret = Secret([7; 32]);
const TEXT: &[u8] = b"a datagram of a link";

fn nets() -> [Net; 2] {
    let open = |me| Net::open(&NetConfig::default(), NodeId(me), 2, SECRET).unwrap();
    let mut nets = [open(0), open(1)];
    let cards = [nets[0].card(), nets[1].card()];
    for (me, net) in nets.iter_mut().enumerate() {
        let peer = 1 - me;
        net.introduce(NodeId(peer as u16), &cards[peer]).unwrap();
    }
    nets
}

fn send(net: &mut Net, to: u16) -> Result<(), Lost> {
    let mut outbound = net.begin(now_ns());
    let sent = outbound.push(NodeId(to), 0, TEXT, Payload::EMPTY, &[]);
    outbound.finish();
    sent
}

/// Datagrams of sessions that have come.
fn count(net: &mut Net) -> usize {
    let mut came = 0;
    while let Some(arrival) = net.poll(now_ns) {
        if let Arrival::Datagram { bytes, .. } = arrival {
            assert!(bytes.starts_with(TEXT));
            came += 1;
        }
    }
    came
}

/// Until a datagram has come from each to the other.
fn meet([a, b]: &mut [Net; 2]) {
    let begun = Instant::now();
    let (mut to_a, mut to_b) = (0, 0);
    while to_a == 0 || to_b == 0 {
        let _ = (send(a, 1), send(b, 0));
        to_a += count(a);
        to_b += count(b);
        assert!(begun.elapsed() < Duration::from_secs(60), "no session");
    }
}

#[test]
#[allow(unsafe_code)]
fn a_forked_child_seals_nothing_sends_nothing_and_takes_nothing() {
    let mut nets = nets();
    meet(&mut nets);
    let [a, b] = &mut nets;
    let (_, _) = (count(a), count(b));
    let rejected = b.counters().rejections();
    // For the parent, and not for the child.
    send(b, 0).unwrap();
    // SAFETY: the child sends, receives and ends; a bare system call runs no handler of the C library.
    let status = unsafe {
        let pid = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t;
        if pid == 0 {
            let refused = (0..8).all(|_| send(a, 1) == Err(Lost::Forked));
            a.sessions.greets = true;
            a.begin(u64::MAX / 2).finish();
            let nothing_came = count(a) == 0;
            libc::_exit(i32::from(!refused) + 2 * i32::from(!nothing_came));
        }
        let mut status = 0;
        libc::waitpid(pid, &raw mut status, 0);
        status
    };
    assert_eq!(status >> 8, 0, "1: sent, 2: received");
    // The numbers that the child would have used.
    for _ in 0..8 {
        send(a, 1).unwrap();
    }
    let begun = Instant::now();
    let (mut to_a, mut to_b) = (0, 0);
    while to_a < 1 || to_b < 8 {
        to_a += count(a);
        to_b += count(b);
        assert!(begun.elapsed() < Duration::from_secs(60), "{to_a} {to_b}");
    }
    assert_eq!((to_a, to_b), (1, 8));
    assert_eq!(b.counters().rejections(), rejected);
}
