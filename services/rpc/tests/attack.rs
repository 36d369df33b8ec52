//! Two nodes that call each other while a third sends them whatever it likes: mended, broken, repeated and invented messages.
//!
//! Each call between the two ends with its own reply, or with an error when their connection was ended, and is carried out at most once.
//! Nothing panics, and no body lies outside the memory that was lent for it.
//!
//! `MAPWIRE_RPC_SEED=n` repeats one seed.

#[path = "../../../tests/random.rs"]
pub(crate) mod random;

#[path = "network/mod.rs"]
mod network;

use std::collections::BTreeMap;

use mapwire_rpc::{CallError, Config, Incoming, Refusal, Rpc, Xid};
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, NodeId};
use network::{Network, PROGRAM, VERSION};
use random::Random;

/// The hostile node. The others are 0 and 1.
const HOSTILE: u16 = 2;

struct Call {
    token: u64,
    /// Repeated as it was, if it is short.
    body: Vec<u8>,
}

struct Held {
    at: u16,
    call: Box<Incoming>,
    arguments: Vec<u8>,
}

pub(crate) struct Attack {
    network: Network,
    config: Config,
    /// Calls of the two that wait, by caller and number.
    waiting: BTreeMap<(u16, Xid), Call>,
    /// Calls in hand.
    held: Vec<Held>,
    /// How often each was carried out.
    carried_out: BTreeMap<u64, u32>,
    tokens: u64,
    /// Connections of the two were ended so often.
    ended: u32,
    /// Messages of the hostile node that were taken, and that were found broken.
    taken: u32,
    broken: u32,
    /// The last messages that it might have sent.
    known: Vec<Vec<u8>>,
}

fn pick<'a, T>(random: &mut Random, of: &'a [T]) -> &'a T {
    &of[random.below(of.len() as u64) as usize]
}

/// A body that says which call it is of.
fn body_of(token: u64, random: &mut Random) -> Vec<u8> {
    let length = match random.below(4) {
        0 => random.within(33, 900),
        _ => random.within(8, 32),
    };
    let mut body = token.to_le_bytes().to_vec();
    body.resize(length as usize, token as u8);
    body
}

impl Attack {
    pub(crate) fn new(random: &mut Random) -> Self {
        let config = Config {
            window: *pick(random, &[1, 2, 7, 256]),
            max_in_progress: *pick(random, &[1, 3, 1024]),
            max_record_bytes: 2048,
            ..Config::default()
        };
        let mut network = Network::new(3, config);
        network.connect(0, 1);
        if random.chance(80) {
            network.connect(HOSTILE, 0);
        }
        Self {
            network,
            config,
            waiting: BTreeMap::new(),
            held: Vec::new(),
            carried_out: BTreeMap::new(),
            tokens: 0,
            ended: 0,
            taken: 0,
            broken: 0,
            known: Vec::new(),
        }
    }

    pub(crate) fn act(&mut self, random: &mut Random) {
        let node = random.below(2) as u16;
        match random.below(16) {
            0..3 => self.call(node, random),
            3..7 => {
                self.network.deliver(node, 1 - node);
            }
            7..9 => self.take(node),
            9..11 => self.reply(random),
            11..=12 if random.chance(5) => self.end(node, random),
            11..=12 => self.look(),
            13 => self.call_by_hostile(random),
            _ => self.attack(random),
        }
    }

    fn call(&mut self, from: u16, random: &mut Random) {
        let token = self.tokens;
        let body = body_of(token, random);
        match self.network.begin(from, 1 - from, &body, random.chance(50)) {
            Ok(xid) => {
                self.tokens += 1;
                self.waiting.insert((from, xid), Call { token, body });
            }
            Err(Refusal::NotOpen(_)) => {
                let session = self.network.node(from).new_session();
                let to = NodeId(1 - from);
                self.network.node(from).connect(to, session, network::AREA);
                self.network.gather();
            }
            Err(Refusal::NoWindow(_) | Refusal::NoRoom(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn take(&mut self, at: u16) {
        let Some((call, arguments)) = self.network.next(at) else {
            return;
        };
        if call.id.peer.0 != HOSTILE {
            let (token, _) = arguments.split_first_chunk().expect("a call of the two");
            let token = u64::from_le_bytes(*token);
            let times = self.carried_out.entry(token).or_default();
            *times += 1;
            assert_eq!(*times, 1, "call {token} is carried out again");
        }
        self.held.push(Held { at, call, arguments });
    }

    fn reply(&mut self, random: &mut Random) {
        if self.held.is_empty() {
            return;
        }
        let which = random.below(self.held.len() as u64) as usize;
        let held = self.held.swap_remove(which);
        let moves = random.chance(50);
        match self.network.reply(held.at, &held.call, &held.arguments, moves) {
            Err(Refusal::NoRoom(_)) => self.held.push(held),
            Ok(()) | Err(Refusal::NotAwaited(_) | Refusal::NotOpen(_) | Refusal::TooLong { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        self.network.gather();
    }

    /// The connection of the two ends.
    fn end(&mut self, node: u16, random: &mut Random) {
        self.ended += 1;
        let peer = NodeId(1 - node);
        if random.chance(50) {
            self.network.node(node).close(peer);
        } else {
            self.network.node(node).handle_lost(Endpoint::first_of(peer));
        }
    }

    /// Looks at all outcomes that have come.
    fn look(&mut self) {
        let waiting: Vec<_> = self.waiting.keys().copied().collect();
        for (from, xid) in waiting {
            let Some(outcome) = self.network.outcome(from, 1 - from, xid) else {
                continue;
            };
            let call = self.waiting.remove(&(from, xid)).expect("it waits");
            match outcome {
                Ok(body) => {
                    assert!(body == call.body, "a call got the reply of another");
                    assert_eq!(self.carried_out.get(&call.token), Some(&1));
                }
                Err(CallError::Closed | CallError::Lost) => assert!(self.ended > 0),
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// The hostile node keeps to the rules for once.
    fn call_by_hostile(&mut self, random: &mut Random) {
        let body = body_of(u64::MAX, random);
        let to = random.below(2) as u16;
        if let Err(Refusal::NotOpen(_)) = self.network.begin(HOSTILE, to, &body, false) {
            let session = self.network.node(HOSTILE).new_session();
            let node = self.network.node(HOSTILE);
            node.connect(NodeId(to), session, network::AREA);
        }
        self.network.gather();
    }

    fn attack(&mut self, random: &mut Random) {
        self.network.gather();
        let to = random.below(2) as u16;
        // What the two say to it, it takes or not.
        let said = self.network.under_way.entry((to, HOSTILE)).or_default();
        if let Some(message) = said.pop_front()
            && random.chance(80)
        {
            let from = Endpoint::first_of(NodeId(to));
            let hostile = self.network.node(HOSTILE);
            let _ = hostile.handle_message(0, from, &message);
        }
        let own = self.network.under_way.entry((HOSTILE, to)).or_default();
        let own = own.pop_front();
        if let Some(own) = &own {
            self.known.push(own.clone());
            let excess = self.known.len().saturating_sub(32);
            self.known.drain(..excess);
        }
        let message = match random.below(10) {
            0..6 => own.unwrap_or_else(|| self.invented(random)),
            6 => self.repeated(random),
            7..9 => {
                let mut message = own.unwrap_or_else(|| self.repeated(random));
                spoil(&mut message, random);
                message
            }
            _ => self.invented(random),
        };
        let from = Endpoint::first_of(NodeId(HOSTILE));
        let victim = self.network.node(to);
        match victim.handle_message(0, from, &message) {
            Ok(()) => self.taken += 1,
            Err(_) => {
                self.broken += 1;
                // Either as a node does, or the service must bear more of it.
                if random.chance(20) {
                    let was = self.network.node(HOSTILE).config().session;
                    let config = Config { session: was + 1000, ..self.config };
                    let mut anew = Rpc::new(config);
                    anew.register(PROGRAM, VERSION);
                    *self.network.node(HOSTILE) = anew;
                }
            }
        }
        self.network.gather();
    }

    fn repeated(&mut self, random: &mut Random) -> Vec<u8> {
        match self.known.is_empty() {
            true => self.invented(random),
            false => pick(random, &self.known).clone(),
        }
    }

    fn invented(&mut self, random: &mut Random) -> Vec<u8> {
        let length = match random.below(8) {
            0 => random.below(2000),
            _ => *pick(random, &[0, 3, 4, 15, 16, 31, 32, 40, 72, 100]),
        };
        let mut bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
        if let [kind, flags, ..] = &mut bytes[..] {
            *kind %= 7;
            *flags &= 3;
        }
        bytes
    }

    /// The two come to an end without the third: every call has its outcome.
    pub(crate) fn finish(mut self) {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            for (from, to) in [(0, 1), (1, 0)] {
                while self.network.deliver(from, to) {}
            }
            for node in [0, 1] {
                self.take(node);
            }
            self.reply(&mut random);
            self.look();
            if self.waiting.is_empty() && self.held.is_empty() {
                return;
            }
        }
        panic!("{} calls have no outcome", self.waiting.len());
    }
}

/// Changes a few bytes, most often those of the envelope and the header.
fn spoil(message: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.within(1, 3) {
        if message.is_empty() {
            return;
        }
        let front = message.len().min(96) as u64;
        let end = match random.below(4) {
            0 => message.len() as u64,
            _ => front,
        };
        let at = random.below(end) as usize;
        match random.below(6) {
            0 => message.truncate(at),
            1 => message.insert(at, random.byte()),
            2 => message[at] = random.byte(),
            3 => message[at] = 0xff,
            4 => message[at] = message[at].wrapping_add(1),
            _ => message[at] ^= 1 << random.below(8),
        }
    }
}

/// A run of so many steps, or of as many as bytes steer it.
pub(crate) fn run(mut random: Random, steps: u32) -> (u32, u32) {
    let mut attack = Attack::new(&mut random);
    let mut done = 0;
    while done < steps || !random.is_spent() {
        attack.act(&mut random);
        done += 1;
    }
    let counts = (attack.taken, attack.broken);
    attack.finish();
    counts
}

#[test]
fn calls_of_two_nodes_go_on_whatever_a_third_sends() {
    let one = std::env::var("MAPWIRE_RPC_SEED").ok();
    let one = one.map(|seed| seed.parse::<u64>().expect("a seed"));
    let seeds = one.map_or(0..400, |seed| seed..seed + 1);
    let (mut taken, mut broken) = (0, 0);
    for seed in seeds {
        let counts = std::panic::catch_unwind(|| run(Random::new(seed), 1_500));
        let counts = counts.unwrap_or_else(|cause| {
            eprintln!("MAPWIRE_RPC_SEED={seed}");
            std::panic::resume_unwind(cause)
        });
        taken += counts.0;
        broken += counts.1;
    }
    if one.is_none() {
        assert!(taken > 1_000, "only {taken} messages of the third were taken");
        assert!(broken > 1_000, "only {broken} were found broken");
    }
}
