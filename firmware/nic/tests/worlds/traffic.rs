//! Sends, fetches and atomic operations between many processes, against byte arrays.
//!
//! [`Traffic::act`] does one thing at random; [`Traffic::settle`] lets all happen and compares.

use std::collections::BTreeMap;

use crate::world::{PAGE, World, fetch, pattern, short_send};
use mapwire_nic::{Completion, Landing};
use mapwire_wire::{Atomic, AtomicOp, CommandRepr, ExportId, ImportId, NodeId, ProcessId, Signal, SignalOp, Width};

const PROCESSES: u16 = 2;
/// Sources of a process's sends.
pub(crate) const SOURCE: u64 = 0x10_0000;
const SOURCE_BYTES: u64 = 5 * PAGE;
/// Memory that others fetch.
const LIBRARY: u64 = 0x20_0000;
const LIBRARY_BYTES: u64 = 4 * PAGE + 100;
/// Destinations of fetches.
pub(crate) const FETCHED: u64 = 0x30_0000;
const FETCHED_BYTES: u64 = 5 * PAGE;
/// Receive buffers, one for each sender; and their landings.
const INBOX: u64 = 0x40_0000;
const LANDING: u64 = 0x80_0000;
const APART: u64 = 0x4_0000;

type Who = (u16, u16);

/// One process's window into another.
struct Window {
    owner: Who,
    export: ExportId,
    import: ImportId,
    address: u64,
    length: u64,
    landing: Option<Landing>,
    /// Expected notifications, as (offset, length).
    notifications: Vec<(u64, u64)>,
}

/// Expected contents of all processes' memory, page by page.
type Expected = BTreeMap<Who, BTreeMap<u64, Vec<u8>>>;

pub(crate) struct Traffic {
    pub(crate) world: World,
    windows: BTreeMap<(Who, Who), Window>,
    library: BTreeMap<(Who, Who), ImportId>,
    expected: Expected,
    next_word: u32,
    words: BTreeMap<Who, Vec<u32>>,
    /// Destination of a process's next fetch: fetches under way do not overlap.
    fetched_to: BTreeMap<Who, u64>,
}

fn everybody(nodes: usize) -> impl Iterator<Item = Who> + Clone {
    (0..nodes as u16).flat_map(|node| (0..PROCESSES).map(move |process| (node, process)))
}

/// The bytes from `address` on, cut at page boundaries.
fn parts(address: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = ((PAGE - address % PAGE) as usize).min(bytes.len());
    let (first, rest) = bytes.split_at(first);
    core::iter::once(first).chain(rest.chunks(PAGE as usize))
}

impl Traffic {
    /// Two processes on each node of `world`, each with a window into each.
    pub(crate) fn new(mut world: World) -> Self {
        let everybody = everybody(world.nodes.len());
        world.blocked_percent = world.random.below(60);
        world.wire_packets = world.random.within(1, 20) as usize;
        world.slow_moves = world.random.chance(50);
        world.neighbours_percent = [0, 50, 90, 100][world.random.below(4) as usize];
        let mut traffic = Self {
            world,
            windows: BTreeMap::new(),
            library: BTreeMap::new(),
            expected: BTreeMap::new(),
            next_word: 0,
            words: BTreeMap::new(),
            fetched_to: everybody.clone().map(|who| (who, FETCHED)).collect(),
        };
        for who in everybody.clone() {
            traffic.world.open(who.0, who.1);
            for (start, length) in [(SOURCE, SOURCE_BYTES), (LIBRARY, LIBRARY_BYTES)] {
                traffic.pin(who, start, length);
                let bytes = pattern(traffic.world.random.next(), length);
                traffic.poke(who, start, &bytes);
            }
            traffic.pin(who, FETCHED, FETCHED_BYTES);
        }
        for owner in everybody.clone() {
            let library = traffic.world.export(owner.0, owner.1, LIBRARY, LIBRARY_BYTES);
            for (at, user) in (0..).zip(everybody.clone()) {
                // Aligned only to words, and with neighbours on its first and last page.
                let random = &mut traffic.world.random;
                let address = INBOX + APART * at + 8 * random.below(512);
                let length = random.within(1, 4 * PAGE);
                traffic.pin(owner, address, length);
                traffic.pin(owner, LANDING + APART * at, 2 * PAGE);
                let export = traffic.world.export(owner.0, owner.1, address, length);
                let import = traffic.world.import(user.0, user.1, owner.0, export, length);
                let window = Window {
                    owner,
                    export: export.0,
                    import,
                    address,
                    length,
                    landing: None,
                    notifications: Vec::new(),
                };
                traffic.windows.insert((user, owner), window);
                let import = traffic.world.import(user.0, user.1, owner.0, library, LIBRARY_BYTES);
                traffic.library.insert((user, owner), import);
            }
        }
        traffic
    }

    fn pin(&mut self, who: Who, start: u64, length: u64) {
        self.world.pin(who.0, who.1, start, length);
        let pages = self.expected.entry(who).or_default();
        for page in start / PAGE..(start + length).div_ceil(PAGE) {
            pages.insert(page, vec![0; PAGE as usize]);
        }
    }

    fn poke(&mut self, who: Who, address: u64, bytes: &[u8]) {
        self.world.poke(who.0, who.1, address, bytes);
        self.expect(who, address, bytes);
    }

    fn expect(&mut self, who: Who, address: u64, bytes: &[u8]) {
        let pages = self.expected.get_mut(&who).unwrap();
        let mut at = address;
        for part in parts(address, bytes) {
            let start = (at % PAGE) as usize;
            pages.get_mut(&(at / PAGE)).unwrap()[start..start + part.len()].copy_from_slice(part);
            at += part.len() as u64;
        }
    }

    fn expected_at(&self, who: Who, address: u64, length: u64) -> Vec<u8> {
        let pages = &self.expected[&who];
        let byte = |at: u64| pages[&(at / PAGE)][(at % PAGE) as usize];
        (address..address + length).map(byte).collect()
    }

    fn expected_word(&self, who: Who, address: u64, bytes: u64) -> u64 {
        let mut word = [0; 8];
        word[..bytes as usize].copy_from_slice(&self.expected_at(who, address, bytes));
        u64::from_le_bytes(word)
    }

    fn word(&mut self, who: Who) -> u32 {
        self.next_word += 1;
        self.words.entry(who).or_default().push(self.next_word);
        self.next_word
    }

    fn draw(&mut self) -> Who {
        let nodes = self.world.nodes.len() as u64;
        let random = &mut self.world.random;
        (random.below(nodes) as u16, random.below(PROCESSES.into()) as u16)
    }

    fn send(&mut self) {
        let (user, owner) = (self.draw(), self.draw());
        let random = &mut self.world.random;
        let window = &self.windows[&(user, owner)];
        let room = window.landing.map_or(window.length, |landing| landing.length.min(window.length));
        let target = window.landing.map_or(window.address, |landing| landing.address);
        let short = random.chance(50);
        let offset = random.below(room + 1);
        let most = (room - offset).min(if short { 112 } else { SOURCE_BYTES });
        let length = random.within(u64::from(!short).min(most), most);
        if !short && length == 0 {
            return;
        }
        let address = SOURCE + random.below(SOURCE_BYTES - length + 1);
        let notify = random.chance(40);
        let signal = (random.chance(40) && room >= 8).then(|| Signal {
            offset: random.below(room / 8) * 8,
            value: random.next(),
            op: [SignalOp::Set, SignalOp::Add, SignalOp::Or][random.below(3) as usize],
        });
        let import = window.import;
        let data = self.expected_at(user, address, length);
        if short {
            let command = short_send(import, offset, &data, notify, signal);
            self.world.submit(user.0, user.1, &command, &data);
        } else {
            let completion = self.word(user);
            let command = CommandRepr::LongSend { import, offset, address, length, notify, signal, completion };
            self.world.submit(user.0, user.1, &command, &[]);
        }
        self.expect(owner, target + offset, &data);
        if let Some(signal) = signal {
            let before = self.expected_word(owner, target + signal.offset, 8);
            let after = match signal.op {
                SignalOp::Set => signal.value,
                SignalOp::Add => before.wrapping_add(signal.value),
                SignalOp::Or => before | signal.value,
            };
            self.expect(owner, target + signal.offset, &after.to_le_bytes());
        }
        if notify {
            let window = self.windows.get_mut(&(user, owner)).unwrap();
            window.notifications.push((offset, length));
        }
    }

    fn fetch(&mut self) {
        let (user, owner) = (self.draw(), self.draw());
        let start = self.fetched_to[&user];
        let random = &mut self.world.random;
        let left = FETCHED + FETCHED_BYTES - start;
        if left < 2 {
            return;
        }
        let gap = random.below(left.min(100));
        let most = (left - gap).min(LIBRARY_BYTES);
        let length = if random.chance(50) { random.within(1, most) } else { random.within(1, most.min(64)) };
        let offset = random.below(LIBRARY_BYTES - length + 1);
        let completion = self.word(user);
        let command = fetch(self.library[&(user, owner)], offset, start + gap, length, completion);
        self.world.submit(user.0, user.1, &command, &[]);
        let data = self.expected_at(owner, LIBRARY + offset, length);
        self.expect(user, start + gap, &data);
        self.fetched_to.insert(user, start + gap + length);
    }

    /// Updates a word of a window, behind all that was sent there.
    fn update(&mut self) {
        let (user, owner) = (self.draw(), self.draw());
        let start = self.fetched_to[&user];
        let random = &mut self.world.random;
        let window = &self.windows[&(user, owner)];
        let (address, room) = window
            .landing
            .map_or((window.address, window.length), |landing| (landing.address, landing.length.min(window.length)));
        let width = [Width::Four, Width::Eight][random.below(2) as usize];
        let bytes = width.bytes();
        if room < bytes || start + bytes > FETCHED + FETCHED_BYTES {
            return;
        }
        let offset = random.below(room / bytes) * bytes;
        let import = window.import;
        let draw = random.next() >> (64 - 8 * bytes);
        let old = self.expected_word(owner, address + offset, bytes);
        let random = &mut self.world.random;
        let op = match random.below(4) {
            0 => AtomicOp::Add,
            1 => AtomicOp::Swap,
            2 => AtomicOp::CompareSwap { expected: old },
            _ => AtomicOp::CompareSwap { expected: old ^ 1 },
        };
        let atomic = Atomic { op, width, operand: draw };
        let completion = self.word(user);
        let command = CommandRepr::Atomic { import, offset, address: start, atomic, completion };
        self.world.submit(user.0, user.1, &command, &[]);
        let new = atomic.result(old).to_le_bytes();
        self.expect(owner, address + offset, &new[..bytes as usize]);
        self.expect(user, start, &old.to_le_bytes()[..bytes as usize]);
        self.fetched_to.insert(user, start + bytes);
    }

    fn redirect(&mut self) {
        self.settle();
        let (user, owner) = (self.draw(), self.draw());
        let random = &mut self.world.random;
        let (place, length) =
            (everybody(self.world.nodes.len()).position(|who| who == user).unwrap(), random.within(1, PAGE));
        let address = LANDING + APART * place as u64 + 8 * random.below(512);
        let landing = random.chance(70).then_some(Landing { address, length });
        let window = self.windows.get_mut(&(user, owner)).unwrap();
        window.landing = landing;
        let export = window.export;
        self.world.nic(owner.0).redirect(export, landing).unwrap();
    }

    /// Does one thing at random.
    pub(crate) fn act(&mut self) {
        match self.world.random.below(20) {
            0..10 => self.send(),
            10..12 => self.fetch(),
            12..14 => self.update(),
            14 => self.redirect(),
            15 => self.settle(),
            _ => {
                for _ in 0..self.world.random.below(40) {
                    self.world.step();
                }
            }
        }
    }

    /// Lets everything happen, and compares everything.
    pub(crate) fn settle(&mut self) {
        let nodes = self.world.nodes.len() as u16;
        self.world.settle();
        for node in 0..nodes {
            let mut notified: BTreeMap<ExportId, Vec<(u64, u64)>> = BTreeMap::new();
            let mut done: BTreeMap<ProcessId, Vec<u32>> = BTreeMap::new();
            for told in self.world.take_told(node) {
                match told {
                    Completion::Done { process, completion } => done.entry(process).or_default().push(completion),
                    Completion::Notification { export, offset, length, process, from } => {
                        let window = self
                            .windows
                            .values()
                            .find(|window| (window.export, window.owner) == (export, (node, process.0)));
                        assert!(window.is_some(), "{export} of {process} at node {node}");
                        assert!(from.0 < nodes);
                        notified.entry(export).or_default().push((offset, length));
                    }
                    other => panic!("node {node} was told {other:?}"),
                }
            }
            for process in 0..PROCESSES {
                let mut told = done.remove(&ProcessId(process)).unwrap_or_default();
                told.sort_unstable();
                let mut expected = self.words.remove(&(node, process)).unwrap_or_default();
                expected.sort_unstable();
                assert_eq!(told, expected, "each word once, at its own process");
            }
            for window in self.windows.values_mut().filter(|window| window.owner.0 == node) {
                let told = notified.remove(&window.export).unwrap_or_default();
                assert_eq!(told, window.notifications, "in the order of the sends");
                window.notifications.clear();
            }
        }
        for (&(node, process), pages) in &self.expected {
            for (&page, bytes) in pages {
                assert!(
                    self.world.peek(node, process, page * PAGE, PAGE) == *bytes,
                    "page {page:#x} of process {process} at node {node}"
                );
            }
        }
        for node in &self.world.nodes {
            assert_eq!((node.memory.garbage_reads, node.memory.garbage_writes), (0, 0));
            assert_eq!(node.nic.counters().rejected.total(), 0);
            for peer in 0..nodes {
                assert!(node.nic.idle_towards(NodeId(peer)));
            }
        }
        self.fetched_to.values_mut().for_each(|next| *next = FETCHED);
    }
}
