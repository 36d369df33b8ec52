//! The tests that every transport must pass.
//!
//! [`run`] takes a maker of connected networks: given `n`, it returns `n` transports, number `i` being node `i`, each
//! connected to every other. What nodes promise each other over any transport stands in [`mapwire_node::conformance`], and is run with
//! packets as messages; the rest is what a [`Transport`] promises besides. The tests poll all of them from one thread, and panic on the
//! first violation.

use std::time::{Duration, Instant};

use mapwire_node::conformance::{self, Heard, Refused, World};
use mapwire_wire::{Header, NodeId};

use crate::payload::Payload;
use crate::transport::{ReceiveError, SendError, Transport};

/// A network: node `i` at index `i`.
pub(crate) type Network = Vec<Box<dyn Transport>>;

/// How long a packet may take to arrive on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest payload at the least: a page and a signal.
const LEAST_BYTES: usize = 4096 + mapwire_wire::SIGNAL_TRAILER_BYTES;

/// Runs every test.
pub(crate) fn run(make: &mut dyn FnMut(usize) -> Network) {
    conformance::run(&mut |nodes| {
        Box::new(Packets { net: make(usize::from(nodes)).into_iter().map(Some).collect(), start: Instant::now() })
    });
    pieces_arrive_joined(make(2));
    peers_take_turns(make(4));
    an_unreleased_packet_stays_and_holds_up_nobody_else(make(3));
    drained_means_that_everything_was_released(make(2));
    a_disconnected_peer_is_told_too(make(2));
    bad_sends_are_refused_and_send_nothing(make(2));
}

/// A network whose packets are the messages.
struct Packets {
    /// `None`: has ended.
    net: Vec<Option<Box<dyn Transport>>>,
    start: Instant,
}

impl Packets {
    fn node(&mut self, node: NodeId) -> Option<&mut Box<dyn Transport>> {
        self.net[usize::from(node.0)].as_mut()
    }

    fn flush(&mut self) {
        self.net.iter_mut().flatten().for_each(|node| node.flush());
    }
}

/// A header that is of this payload only.
fn header_of(payload: &[u8]) -> Header {
    let sum = |sum: u32, byte: &u8| sum.rotate_left(5) ^ u32::from(*byte);
    header(payload.iter().fold(7, sum), payload.len())
}

impl World for Packets {
    fn max_bytes(&self) -> usize {
        let longest = self.net.iter().flatten().map(|node| node.max_payload_bytes());
        longest.min().expect("a node")
    }

    fn keeps_last_words(&self) -> bool {
        true
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: &[u8]) -> Result<(), Refused> {
        let node = self.node(from).expect("a node that has not ended");
        match node.send(to, &header_of(message), Payload::one(message)) {
            Ok(()) => Ok(()),
            Err(SendError::WouldBlock(of)) if of == to => Err(Refused::Full),
            Err(SendError::PeerGone(of)) if of == to => Err(Refused::Gone),
            Err(other) => panic!("{other}"),
        }
    }

    fn hear(&mut self, at: NodeId) -> Option<Heard> {
        let node = self.node(at)?;
        let packet = match node.poll_receive() {
            Ok(packet) => packet?,
            Err(ReceiveError::PeerGone(peer)) => return Some(Heard::Gone(peer)),
            Err(other) => panic!("{other}"),
        };
        let mut payload = vec![0; packet.payload.len_bytes()];
        packet.payload.copy_to_slice(0, &mut payload);
        assert_eq!(packet.header, &header_of(&payload), "the header");
        let from = packet.from;
        node.release(from);
        Some(Heard::Message(from, payload))
    }

    fn go_on(&mut self) -> bool {
        self.flush();
        self.start.elapsed() < PATIENCE
    }

    fn rest(&mut self) {
        let end = Instant::now() + Duration::from_millis(10);
        while Instant::now() < end {
            self.flush();
            std::thread::yield_now();
        }
    }

    fn end(&mut self, node: NodeId) {
        self.net[usize::from(node.0)] = None;
    }

    fn give_up(&mut self, at: NodeId, peer: NodeId) {
        if let Some(node) = self.node(at) {
            node.disconnect(peer);
        }
    }
}

/// A packet as a test keeps it.
#[derive(Debug, PartialEq, Eq)]
struct TestPacket {
    from: NodeId,
    number: u32,
    payload: Vec<u8>,
}

fn header(number: u32, len_bytes: usize) -> Header {
    let mut header = Header::ZERO;
    header.version = mapwire_wire::VERSION;
    header.length.set(len_bytes as u32);
    header.sequence.set(number);
    header.message.set(!number);
    header.offset.set(u64::from(number) << 24);
    header
}

fn pattern(number: u32, len_bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len_bytes).map(|_| next()).collect()
}

fn try_send(net: &mut Network, by: usize, to: u16, number: u32, len_bytes: usize) -> Result<(), SendError> {
    let payload = pattern(number, len_bytes);
    net[by].send(NodeId(to), &header(number, len_bytes), Payload::one(&payload[..]))
}

/// What a node polls, while the others go on with what they have begun.
fn look(net: &mut Network, by: usize) -> Result<Option<TestPacket>, ReceiveError> {
    for (node, other) in net.iter_mut().enumerate() {
        if node != by {
            other.flush();
        }
    }
    let Some(packet) = net[by].poll_receive()? else {
        return Ok(None);
    };
    let mut payload = vec![0; packet.payload.len_bytes()];
    packet.payload.copy_to_slice(0, &mut payload);
    let number = packet.header.sequence.get();
    assert_eq!(packet.header, &header(number, payload.len()), "the header");
    let from = packet.from;
    Ok(Some(TestPacket { from, number, payload }))
}

/// Waits for a packet or an ending, and releases the packet.
fn receive(net: &mut Network, by: usize) -> Result<TestPacket, ReceiveError> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(kept) = look(net, by)? {
            net[by].release(kept.from);
            return Ok(kept);
        }
    }
    panic!("no packet within {PATIENCE:?}");
}

/// Waits until a node has input, which takes its time on a network.
fn expect_input(net: &mut Network, by: usize) {
    let start = Instant::now();
    while !net[by].has_input() {
        assert!(start.elapsed() < PATIENCE, "no input within {PATIENCE:?}");
    }
}

fn expect(net: &mut Network, by: usize, from: u16, number: u32, len_bytes: usize) {
    let kept = receive(net, by).expect("a packet");
    assert_eq!((kept.from, kept.number), (NodeId(from), number));
    assert!(kept.payload == pattern(number, len_bytes), "{len_bytes} bytes");
}

fn expect_nothing(net: &mut Network, by: usize) {
    for _ in 0..1000 {
        assert_eq!(look(net, by), Ok(None));
    }
}

fn pieces_arrive_joined(mut net: Network) {
    let longest = net[0].max_payload_bytes();
    for len_bytes in [0, 1, 8, 16, 17, 100, 136, 137, 1000, 4096, LEAST_BYTES, longest] {
        let bytes = pattern(1, len_bytes);
        for cut in [0, 1, 5, 16, 128, len_bytes / 2, len_bytes] {
            let (first, rest) = bytes.split_at(cut.min(len_bytes));
            let payload = Payload::two(first, rest);
            let sent = net[0].send(NodeId(1), &header(1, len_bytes), payload);
            sent.expect("room");
            expect(&mut net, 1, 0, 1, len_bytes);
        }
    }
}

fn peers_take_turns(mut net: Network) {
    const EACH: u32 = 16;
    for number in 0..EACH {
        for peer in 1..4 {
            try_send(&mut net, peer, 0, number, 8).expect("room");
        }
    }
    let mut got = [0; 4];
    for _ in 0..3 * EACH {
        let kept = receive(&mut net, 0).expect("a packet");
        got[usize::from(kept.from.0)] += 1;
        let (least, most) = (got[1..].iter().min(), got[1..].iter().max());
        assert!(most <= least.map(|least| least + EACH / 2).as_ref(), "one peer is served, another waits: {got:?}");
    }
}

fn an_unreleased_packet_stays_and_holds_up_nobody_else(mut net: Network) {
    try_send(&mut net, 1, 0, 1, 500).expect("room");
    try_send(&mut net, 1, 0, 2, 5).expect("room");
    let start = Instant::now();
    let held = loop {
        assert!(start.elapsed() < PATIENCE);
        if let Some(kept) = look(&mut net, 0).expect("no ending") {
            break kept;
        }
    };
    assert_eq!((held.from, held.number), (NodeId(1), 1));
    try_send(&mut net, 2, 0, 3, 5).expect("room");
    let mut others = 0;
    while others == 0 {
        assert!(start.elapsed() < PATIENCE, "held up");
        match look(&mut net, 0).expect("no ending") {
            Some(kept) if kept.from == NodeId(2) => {
                net[0].release(NodeId(2));
                others += 1;
            }
            Some(kept) => assert_eq!(kept, held, "the same packet again"),
            None => {}
        }
    }
    expect(&mut net, 0, 1, 1, 500);
    expect(&mut net, 0, 1, 2, 5);
    net[0].release(NodeId(1));
    expect_nothing(&mut net, 0);
}

fn drained_means_that_everything_was_released(mut net: Network) {
    assert_eq!(net[0].drained(NodeId(1)), Ok(true));
    try_send(&mut net, 0, 1, 7, 4000).expect("room");
    assert_eq!(net[0].drained(NodeId(1)), Ok(false));
    expect_input(&mut net, 1);
    expect(&mut net, 1, 0, 7, 4000);
    assert!(!net[1].has_input());
    net[1].flush();
    let start = Instant::now();
    while net[0].drained(NodeId(1)) != Ok(true) {
        assert!(start.elapsed() < PATIENCE, "never drained");
    }
}

fn expect_ending(net: &mut Network, by: usize, from: u16) {
    let ending = receive(net, by).expect_err("an ending");
    assert_eq!(ending, ReceiveError::PeerGone(NodeId(from)));
    expect_nothing(net, by);
    assert_eq!(try_send(net, by, from, 0, 8), Err(SendError::PeerGone(NodeId(from))));
}

fn a_disconnected_peer_is_told_too(mut net: Network) {
    try_send(&mut net, 1, 0, 1, 3000).expect("room");
    net[0].disconnect(NodeId(1));
    assert_eq!(try_send(&mut net, 0, 1, 0, 8), Err(SendError::PeerGone(NodeId(1))));
    expect(&mut net, 0, 1, 1, 3000);
    expect_ending(&mut net, 0, 1);
}

fn bad_sends_are_refused_and_send_nothing(mut net: Network) {
    let longest = net[0].max_payload_bytes();
    assert_eq!(
        try_send(&mut net, 0, 1, 0, longest + 1),
        Err(SendError::TooLong { len_bytes: longest + 1, max_bytes: longest })
    );
    for stranger in [2, u16::MAX] {
        assert_eq!(try_send(&mut net, 0, stranger, 0, 8), Err(SendError::NotConnected(NodeId(stranger))));
        net[0].release(NodeId(stranger));
        net[0].disconnect(NodeId(stranger));
        assert_eq!(net[0].drained(NodeId(stranger)), Err(SendError::NotConnected(NodeId(stranger))));
    }
    expect_nothing(&mut net, 1);
    try_send(&mut net, 0, 1, 5, longest).expect("the longest itself passes");
    expect(&mut net, 1, 0, 5, longest);
}
