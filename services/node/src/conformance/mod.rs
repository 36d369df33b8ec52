//! What nodes promise each other, whatever carries their packets: one suite for every transport.
//!
//! A [`World`] is a few nodes that can send each other messages. Over a lossless transport these may be the packets themselves; where
//! packets may be lost they are messages of whole nodes, whose links recover them, and the world loses, repeats, reorders and damages
//! datagrams as it likes. [`run`] takes a maker of worlds and panics on the first promise that is broken:
//!
//! * messages of one node to another arrive once, unchanged and in order, of any length that the world carries;
//! * a receiver that is full pushes back, and loses nothing of what was taken for it;
//! * a node that ends is told once to each of the others, after what came of it; that is all it had sent, or the begin of it;
//! * nothing comes of a node that is gone, nothing can be sent to it, and the others go on;
//! * who treats a peer as gone hears nothing of it any more.

mod talker;

use alloc::boxed::Box;
use alloc::vec::Vec;

use mapwire_wire::NodeId;

pub use talker::{TALKER, Talker};

/// Why a message was not sent. Nothing of it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room now.
    Full,
    /// The receiver is gone.
    Gone,
}

/// What a node hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message of a peer.
    Message(NodeId, Vec<u8>),
    /// A peer is gone.
    Gone(NodeId),
}

/// Nodes 0 to n − 1, each of which can send to every other.
pub trait World {
    /// Bytes of the longest message.
    fn max_bytes(&self) -> usize;

    /// Whether all that a node has sent arrives when it ends; otherwise its begin.
    fn keeps_last_words(&self) -> bool;

    /// Sends a message. Time passes for `from` at most.
    ///
    /// # Errors
    /// [`Refused`].
    fn send(&mut self, from: NodeId, to: NodeId, message: &[u8]) -> Result<(), Refused>;

    /// What `at` hears next, of what has come. No time passes.
    fn hear(&mut self, at: NodeId) -> Option<Heard>;

    /// Lets time pass for all nodes. False when so much has passed that nothing awaited can still come.
    fn go_on(&mut self) -> bool;

    /// Lets so much time pass that whatever is under way arrives.
    fn rest(&mut self);

    /// A node ends without a word.
    fn end(&mut self, node: NodeId);

    /// `at` treats a peer as gone.
    fn give_up(&mut self, at: NodeId, peer: NodeId);
}

/// Makes a world of so many nodes.
pub type Make<'a> = &'a mut dyn FnMut(u16) -> Box<dyn World>;

/// A receiver must push back before so many messages wait for it.
const MOST_WAITING: u32 = 1 << 20;

/// Runs the suite.
pub fn run(make: Make<'_>) {
    messages_of_every_length_arrive_once_and_unchanged(&mut *make(2));
    messages_of_each_pair_arrive_in_order_while_all_talk_to_all(&mut *make(4));
    a_full_receiver_pushes_back_and_loses_nothing(&mut *make(2));
    a_node_that_ends_is_told_once_behind_what_it_has_sent(&mut *make(3));
    nothing_comes_of_a_peer_that_was_given_up(&mut *make(3));
}

/// All nodes that a world has in this suite.
const NODES: [NodeId; 4] = [NodeId(0), NodeId(1), NodeId(2), NodeId(3)];

/// Messages from one node to another.
struct Stream {
    from: NodeId,
    to: NodeId,
    lengths: Vec<usize>,
    sent: usize,
    heard: usize,
}

impl Stream {
    fn new(from: u16, to: u16, lengths: impl IntoIterator<Item = usize>) -> Self {
        Self { from: NodeId(from), to: NodeId(to), lengths: lengths.into_iter().collect(), sent: 0, heard: 0 }
    }

    fn message(&self, number: usize) -> Vec<u8> {
        let pair = u32::from(self.from.0) << 8 | u32::from(self.to.0);
        content(pair << 16 ^ number as u32, self.lengths[number])
    }

    fn send_next(&mut self, world: &mut dyn World) -> Result<(), Refused> {
        let message = self.message(self.sent);
        let sent = world.send(self.from, self.to, &message);
        self.sent += usize::from(sent.is_ok());
        sent
    }

    /// Sends while there is room.
    fn send_all(&mut self, world: &mut dyn World) {
        while self.sent < self.lengths.len() && self.send_next(world).is_ok() {}
    }

    /// Takes a message that came of this stream: it must be the next.
    fn take(&mut self, message: &[u8]) {
        let (from, to, number) = (self.from, self.to, self.heard);
        assert!(number < self.sent, "{from} to {to}: a message too many, of {} bytes", message.len());
        assert!(
            message == self.message(number),
            "{from} to {to}, message {number} of {} bytes: {} others came",
            self.lengths[number],
            message.len()
        );
        self.heard += 1;
    }

    fn is_over(&self) -> bool {
        self.heard == self.lengths.len()
    }
}

/// Bytes that differ by seed and place.
fn content(seed: u32, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Lengths of all sizes, in an order without sense.
fn mixed(count: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |number| match number * 7919 % 16 {
        0 => most,
        short @ 1..12 => (short * 12).min(most),
        long => (long * 97).min(most),
    })
}

/// Gives what these nodes have heard to its stream. Who was told that somebody is gone, and who.
fn hear_all(world: &mut dyn World, nodes: &[NodeId], streams: &mut [Stream]) -> Vec<(NodeId, NodeId)> {
    let mut gone = Vec::new();
    for &at in nodes {
        while let Some(heard) = world.hear(at) {
            match heard {
                Heard::Gone(node) => gone.push((at, node)),
                Heard::Message(from, message) => {
                    let mut of = streams.iter_mut();
                    of.find(|of| (of.from, of.to) == (from, at)).expect("nobody sent that").take(&message);
                }
            }
        }
    }
    gone
}

/// Lets streams run to their ends. Nobody is told to be gone meanwhile, and nothing comes behind.
fn exchange(world: &mut dyn World, nodes: usize, streams: &mut [Stream]) {
    while !streams.iter().all(Stream::is_over) {
        for stream in &mut *streams {
            stream.send_all(world);
        }
        assert_eq!(hear_all(world, &NODES[..nodes], streams), []);
        if let Some(it) = streams.iter().find(|stream| !stream.is_over()) {
            let (from, to, sent, heard) = (it.from, it.to, it.sent, it.heard);
            assert!(world.go_on(), "{from} to {to}: {heard} came of {sent} messages");
        }
    }
    world.rest();
    assert_eq!(hear_all(world, &NODES[..nodes], streams), []);
}

fn messages_of_every_length_arrive_once_and_unchanged(world: &mut dyn World) {
    let longest = world.max_bytes();
    // All up to a page, beyond it those around whole pages, and the longest.
    let is_looked_at = |bytes: &usize| *bytes < 4096 || (bytes + 17) % 4096 < 34;
    let lengths: Vec<usize> = (0..=longest).filter(|bytes| is_looked_at(bytes) || longest - bytes < 3).collect();
    let back = lengths.iter().rev().copied();
    let mut streams = [Stream::new(0, 1, lengths.clone()), Stream::new(1, 0, back)];
    exchange(world, 2, &mut streams);
}

fn messages_of_each_pair_arrive_in_order_while_all_talk_to_all(world: &mut dyn World) {
    let longest = world.max_bytes();
    let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
    let mut streams: Vec<Stream> =
        pairs.filter(|(from, to)| from != to).map(|(from, to)| Stream::new(from, to, mixed(1000, longest))).collect();
    exchange(world, 4, &mut streams);
}

fn a_full_receiver_pushes_back_and_loses_nothing(world: &mut dyn World) {
    let longest = world.max_bytes();
    for bytes in [0, 100, longest.min(4096), longest] {
        for _ in 0..2 {
            let mut stream = Stream::new(0, 1, [bytes]);
            let refused = loop {
                match stream.send_next(world) {
                    Ok(()) => stream.lengths.push(bytes),
                    Err(refused) => break refused,
                }
                assert!(stream.sent < MOST_WAITING as usize, "no push back");
            };
            assert_eq!(refused, Refused::Full);
            assert!(stream.sent > 0, "there was room at first");
            stream.lengths.pop();
            exchange(world, 2, &mut [stream]);
        }
    }
}

/// Lets time pass until all of `at` have been told that `node` is gone. Where messages may be lost they go on to talk to it: a link looks
/// for a peer that is awaited.
fn await_end(world: &mut dyn World, at: &[NodeId], node: NodeId, streams: &mut [Stream]) {
    let mut told = Vec::new();
    while told.len() < at.len() {
        if !world.keeps_last_words() {
            for &survivor in at {
                let _ = world.send(survivor, node, b"are you there?");
            }
        }
        for (by, gone) in hear_all(world, at, streams) {
            assert_eq!(gone, node, "told to {by}");
            assert!(!told.contains(&by), "{by} is told twice");
            told.push(by);
        }
        let is_over = told.len() == at.len() || world.go_on();
        assert!(is_over, "told to {told:?} only that {node} is gone");
    }
    for &survivor in at {
        assert_eq!(world.send(survivor, node, b""), Err(Refused::Gone));
    }
}

fn a_node_that_ends_is_told_once_behind_what_it_has_sent(world: &mut dyn World) {
    // They know each other.
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let hello = |(from, to)| Stream::new(from, to, [8]);
    exchange(world, 3, &mut pairs.map(hello));
    let last = |to| Stream::new(2, to, mixed(10, world.max_bytes().min(3000)));
    let mut streams = [last(0), last(1)];
    for stream in &mut streams {
        stream.send_all(world);
        stream.lengths.truncate(stream.sent);
        assert!(stream.sent > 0);
    }
    world.end(NodeId(2));
    let survivors = [NodeId(0), NodeId(1)];
    await_end(world, &survivors, NodeId(2), &mut streams);
    if world.keeps_last_words() {
        assert!(streams.iter().all(Stream::is_over));
    }
    // Nothing comes behind the word of its end, not even its messages.
    world.rest();
    assert_eq!(hear_all(world, &NODES[..3], &mut []), []);
    let longest = world.max_bytes();
    let others = [(0, 1), (1, 0)].map(|(from, to)| Stream::new(from, to, mixed(100, longest)));
    exchange(world, 3, &mut { others });
}

fn nothing_comes_of_a_peer_that_was_given_up(world: &mut dyn World) {
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let hello = |(from, to)| Stream::new(from, to, [8]);
    exchange(world, 3, &mut pairs.map(hello));
    let (at, peer) = (NodeId(0), NodeId(1));
    let mut stream = Stream::new(1, 0, mixed(20, world.max_bytes().min(3000)));
    stream.send_all(world);
    world.give_up(at, peer);
    let mut streams = [stream];
    await_end(world, &[at], peer, &mut streams);
    for _ in 0..100 {
        let _ = world.send(peer, at, b"still here");
        assert_eq!(hear_all(world, &[at], &mut []), []);
        assert!(world.go_on());
    }
    // Nobody else notices, and the peer goes on with them.
    let longest = world.max_bytes();
    let others = [(0, 2), (2, 0), (1, 2), (2, 1)];
    let mut streams = others.map(|(from, to)| Stream::new(from, to, mixed(100, longest)));
    while !streams.iter().all(Stream::is_over) {
        for stream in &mut streams {
            stream.send_all(world);
        }
        for (by, gone) in hear_all(world, &NODES[..3], &mut streams) {
            assert_eq!((by, gone), (peer, at), "its own links may give up");
        }
        let is_over = streams.iter().all(Stream::is_over) || world.go_on();
        assert!(is_over, "the others are stuck");
    }
}
