//! Sends and fetches between many processes, against byte arrays.

use std::collections::BTreeMap;

use crate::world::random::{Random, for_seeds};
use crate::world::{PAGE, World, fetch, long_send, notifying_send, pattern, short_send, words};
use mapwire_nic::{Completion, Landing};
use mapwire_wire::{CommandRepr, ExportId, ImportId, NodeId, ProcessId, Signal};

const NODES: u16 = 3;
const PROCESSES: u16 = 2;
/// Sources of a process's sends.
const SOURCE: u64 = 0x10_0000;
const SOURCE_BYTES: u64 = 5 * PAGE;
/// What others fetch.
const LIBRARY: u64 = 0x20_0000;
const LIBRARY_BYTES: u64 = 4 * PAGE + 100;
/// Destinations of fetches.
const FETCHED: u64 = 0x30_0000;
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
    /// Notifications that are to come, as (offset, length).
    notifications: Vec<(u64, u64)>,
}

/// All of a process's memory, page by page, as it should be.
type Expected = BTreeMap<Who, BTreeMap<u64, Vec<u8>>>;

struct Run {
    world: World,
    windows: BTreeMap<(Who, Who), Window>,
    library: BTreeMap<(Who, Who), ImportId>,
    expected: Expected,
    next_word: u32,
    words: BTreeMap<Who, Vec<u32>>,
    /// Where the next fetch of a process goes: fetches under way do not overlap.
    fetched_to: BTreeMap<Who, u64>,
}

fn everybody() -> impl Iterator<Item = Who> {
    (0..NODES).flat_map(|node| (0..PROCESSES).map(move |process| (node, process)))
}

/// The bytes from `address` on, cut at page boundaries.
fn parts(address: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = ((PAGE - address % PAGE) as usize).min(bytes.len());
    let (first, rest) = bytes.split_at(first);
    core::iter::once(first).chain(rest.chunks(PAGE as usize))
}

impl Run {
    fn new(mut world: World) -> Self {
        world.blocked_percent = world.random.below(60);
        world.wire_packets = world.random.within(1, 20) as usize;
        world.slow_moves = world.random.chance(50);
        let mut run = Self {
            world,
            windows: BTreeMap::new(),
            library: BTreeMap::new(),
            expected: BTreeMap::new(),
            next_word: 0,
            words: BTreeMap::new(),
            fetched_to: everybody().map(|who| (who, FETCHED)).collect(),
        };
        for who in everybody() {
            run.world.open(who.0, who.1);
            for (start, length) in [(SOURCE, SOURCE_BYTES), (LIBRARY, LIBRARY_BYTES)] {
                run.pin(who, start, length);
                let bytes = pattern(run.world.random.next(), length);
                run.poke(who, start, &bytes);
            }
            run.pin(who, FETCHED, FETCHED_BYTES);
        }
        for owner in everybody() {
            let library = run.world.export(owner.0, owner.1, LIBRARY, LIBRARY_BYTES);
            for (at, user) in (0..).zip(everybody()) {
                // Not aligned to anything but words, and with neighbours on its first and last page.
                let random = &mut run.world.random;
                let address = INBOX + APART * at + 8 * random.below(512);
                let length = random.within(1, 4 * PAGE);
                run.pin(owner, address, length);
                run.pin(owner, LANDING + APART * at, 2 * PAGE);
                let export = run.world.export(owner.0, owner.1, address, length);
                let import = run.world.import(user.0, user.1, owner.0, export, length);
                let window = Window {
                    owner,
                    export: export.0,
                    import,
                    address,
                    length,
                    landing: None,
                    notifications: Vec::new(),
                };
                run.windows.insert((user, owner), window);
                let import = run
                    .world
                    .import(user.0, user.1, owner.0, library, LIBRARY_BYTES);
                run.library.insert((user, owner), import);
            }
        }
        run
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

    fn word(&mut self, who: Who) -> u32 {
        self.next_word += 1;
        self.words.entry(who).or_default().push(self.next_word);
        self.next_word
    }

    fn draw(&mut self) -> Who {
        let random = &mut self.world.random;
        (
            random.below(NODES.into()) as u16,
            random.below(PROCESSES.into()) as u16,
        )
    }

    fn send(&mut self) {
        let (user, owner) = (self.draw(), self.draw());
        let random = &mut self.world.random;
        let window = &self.windows[&(user, owner)];
        let room = window
            .landing
            .map_or(window.length, |landing| landing.length.min(window.length));
        let target = window
            .landing
            .map_or(window.address, |landing| landing.address);
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
        });
        let import = window.import;
        let data = self.expected_at(user, address, length);
        if short {
            let command = short_send(import, offset, &data, notify, signal);
            self.world.submit(user.0, user.1, &command, &data);
        } else {
            let completion = self.word(user);
            let command = CommandRepr::LongSend {
                import,
                offset,
                address,
                length,
                notify,
                signal,
                completion,
            };
            self.world.submit(user.0, user.1, &command, &[]);
        }
        self.expect(owner, target + offset, &data);
        if let Some(signal) = signal {
            self.expect(owner, target + signal.offset, &signal.value.to_le_bytes());
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
        let length = if random.chance(50) {
            random.within(1, most)
        } else {
            random.within(1, most.min(64))
        };
        let offset = random.below(LIBRARY_BYTES - length + 1);
        let completion = self.word(user);
        let command = fetch(
            self.library[&(user, owner)],
            offset,
            start + gap,
            length,
            completion,
        );
        self.world.submit(user.0, user.1, &command, &[]);
        let data = self.expected_at(owner, LIBRARY + offset, length);
        self.expect(user, start + gap, &data);
        self.fetched_to.insert(user, start + gap + length);
    }

    fn redirect(&mut self) {
        self.settle();
        let (user, owner) = (self.draw(), self.draw());
        let random = &mut self.world.random;
        let (place, length) = (
            everybody().position(|who| who == user).unwrap(),
            random.within(1, PAGE),
        );
        let address = LANDING + APART * place as u64 + 8 * random.below(512);
        let landing = random.chance(70).then_some(Landing { address, length });
        let window = self.windows.get_mut(&(user, owner)).unwrap();
        window.landing = landing;
        let export = window.export;
        self.world.nic(owner.0).redirect(export, landing).unwrap();
    }

    /// Lets all happen, and compares everything.
    fn settle(&mut self) {
        self.world.settle();
        for node in 0..NODES {
            let mut notified: BTreeMap<ExportId, Vec<(u64, u64)>> = BTreeMap::new();
            let mut done: BTreeMap<ProcessId, Vec<u32>> = BTreeMap::new();
            for told in self.world.take_told(node) {
                match told {
                    Completion::Done {
                        process,
                        completion,
                    } => done.entry(process).or_default().push(completion),
                    Completion::Notification {
                        export,
                        offset,
                        length,
                        process,
                        from,
                    } => {
                        let window = self.windows.values().find(|window| {
                            (window.export, window.owner) == (export, (node, process.0))
                        });
                        assert!(window.is_some(), "{export} of {process} at node {node}");
                        assert!(from.0 < NODES);
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
            for window in self
                .windows
                .values_mut()
                .filter(|window| window.owner.0 == node)
            {
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
            assert_eq!(
                (node.memory.garbage_reads, node.memory.garbage_writes),
                (0, 0)
            );
            assert_eq!(node.nic.counters().rejected.total(), 0);
            for peer in 0..NODES {
                assert!(node.nic.idle_towards(NodeId(peer)));
            }
        }
        self.fetched_to
            .values_mut()
            .for_each(|next| *next = FETCHED);
    }
}

#[test]
fn any_sequence_of_sends_and_fetches_leaves_memory_as_byte_arrays_would() {
    any_sequence(100, 0, false);
}

#[test]
fn so_it_does_when_translations_are_missing_and_transfers_wait_for_the_host() {
    any_sequence(100, 20, false);
}

#[test]
fn so_it_does_when_packets_are_dropped_and_sent_again() {
    any_sequence(200, 20, true);
    any_sequence(50, 60, true);
}

fn any_sequence(seeds: u64, percent: u64, drops: bool) {
    for_seeds(seeds, |seed| {
        let mut run = Run::new(World::forgetful(usize::from(NODES), seed, percent, drops));
        for _ in 0..80 {
            match run.world.random.below(20) {
                0..10 => run.send(),
                10..14 => run.fetch(),
                14 => run.redirect(),
                15 => run.settle(),
                _ => {
                    for _ in 0..run.world.random.below(40) {
                        run.world.step();
                    }
                }
            }
        }
        run.settle();
    });
}

/// Two nodes with a process each, and an import of `length` bytes at `address` of node 1's, its pages pinned.
fn pair(seed: u64, address: u64, length: u64) -> (World, ImportId, ExportId) {
    let mut world = World::new(2, seed);
    world.open(0, 0);
    world.open(1, 0);
    world.pin(1, 0, address, length);
    let export = world.export(1, 0, address, length);
    let import = world.import(0, 0, 1, export, length);
    (world, import, export.0)
}

#[test]
fn each_offset_and_length_around_a_page_boundary_is_scattered_to_two_frames() {
    let (mut world, import, _) = pair(1, 0x7000, 3 * PAGE);
    world.pin(0, 0, SOURCE, 2 * PAGE);
    let source = pattern(5, 2 * PAGE);
    world.poke(0, 0, SOURCE, &source);
    for from in [0, 1, PAGE - 1, PAGE / 2] {
        for offset in [0, 1, PAGE - 130, PAGE - 8, PAGE - 1, PAGE, PAGE + 1] {
            for length in [1, 2, 8, 9, 128, 129, PAGE - 1, PAGE] {
                world.poke(1, 0, 0x7000, &vec![0; 3 * PAGE as usize]);
                let command = long_send(import, offset, SOURCE + from, length, 0);
                world.submit(0, 0, &command, &[]);
                world.settle();
                let mut expected = vec![0; 3 * PAGE as usize];
                let (to, from) = (offset as usize, from as usize);
                expected[to..to + length as usize]
                    .copy_from_slice(&source[from..from + length as usize]);
                assert!(
                    world.peek(1, 0, 0x7000, 3 * PAGE) == expected,
                    "{from} to {offset}, {length}"
                );
            }
        }
    }
}

#[test]
fn chunks_end_at_the_page_boundaries_of_the_source() {
    let (mut world, import, _) = pair(2, 0x7000, 4 * PAGE);
    world.pin(0, 0, SOURCE, 4 * PAGE);
    world.log = Some(Vec::new());
    world.submit(
        0,
        0,
        &long_send(import, 50, SOURCE + 4000, 2 * PAGE + 200, 0),
        &[],
    );
    world.settle();
    let lengths: Vec<_> = world
        .log
        .take()
        .unwrap()
        .iter()
        .map(|(_, _, sent)| sent.payload.len())
        .collect();
    assert_eq!(lengths, [96, 4096, 4096, 104]);
}

#[test]
fn what_arrives_for_an_unpinned_page_is_lost_in_the_garbage_frame_and_nowhere_else() {
    let mut world = World::new(2, 3);
    world.open(0, 0);
    world.open(1, 0);
    let export = world.export(1, 0, 0x7000, 3 * PAGE);
    let import = world.import(0, 0, 1, export, 3 * PAGE);
    world.pin(1, 0, 0x7000, PAGE);
    world.pin(1, 0, 0x9000, PAGE);
    world.pin(0, 0, SOURCE, 3 * PAGE);
    world.poke(0, 0, SOURCE, &pattern(1, 3 * PAGE));
    world.submit(0, 0, &notifying_send(import, 0, SOURCE, 3 * PAGE, 9), &[]);
    world.settle();
    assert_eq!(
        world.peek(1, 0, 0x7000, PAGE),
        pattern(1, 3 * PAGE)[..PAGE as usize]
    );
    assert_eq!(
        world.peek(1, 0, 0x9000, PAGE),
        pattern(1, 3 * PAGE)[2 * PAGE as usize..]
    );
    assert_eq!(world.nodes[1].memory.garbage_writes, 1);
    assert_eq!(world.nic(1).counters().garbage_pieces, 1);
    assert_eq!(words(&world.take_told(0)), (vec![9], vec![]));
}

#[test]
fn a_source_that_is_not_pinned_reads_the_garbage_frame() {
    let (mut world, import, _) = pair(4, 0x7000, PAGE);
    world.submit(0, 0, &long_send(import, 0, 0xdead_0000, PAGE, 1), &[]);
    world.settle();
    assert_eq!(world.nodes[0].memory.garbage_reads, 1);
    assert_eq!(words(&world.take_told(0)), (vec![1], vec![]));
}

#[test]
fn whoever_sees_the_signal_sees_the_data_before_it() {
    for_seeds(30, |seed| {
        let (mut world, import, _) = pair(seed, 0x7000, 9 * PAGE);
        world.blocked_percent = 50;
        world.slow_moves = seed % 2 == 0;
        world.pin(0, 0, SOURCE, 9 * PAGE);
        for round in 1..=5u64 {
            let length = Random::new(seed + round).within(1, 8 * PAGE);
            let data = pattern(round, length);
            world.poke(0, 0, SOURCE, &data);
            let signal = Some(Signal {
                offset: 8 * PAGE,
                value: round,
            });
            let command = CommandRepr::LongSend {
                import,
                offset: 3,
                address: SOURCE,
                length,
                notify: false,
                signal,
                completion: 0,
            };
            world.submit(0, 0, &command, &[]);
            while world.step() {
                if world.peek(1, 0, 0x7000 + 8 * PAGE, 8) == round.to_le_bytes() {
                    assert!(world.peek(1, 0, 0x7003, length) == data);
                }
            }
            assert_eq!(world.peek(1, 0, 0x7000 + 8 * PAGE, 8), round.to_le_bytes());
        }
    });
}

#[test]
fn a_store_of_nothing_still_notifies_and_signals() {
    let (mut world, import, export) = pair(6, 0x7000, PAGE);
    let signal = Some(Signal {
        offset: 16,
        value: 77,
    });
    world.submit(0, 0, &short_send(import, PAGE, &[], true, signal), &[]);
    world.settle();
    assert_eq!(world.peek(1, 0, 0x7010, 8), 77u64.to_le_bytes());
    let expected = Completion::Notification {
        process: ProcessId(0),
        export,
        from: NodeId(0),
        offset: PAGE,
        length: 0,
    };
    assert_eq!(world.take_told(1), [expected]);
}

#[test]
fn messages_of_two_processes_to_one_node_are_told_apart_although_their_packets_mix() {
    let mut world = World::new(2, 7);
    world.open(1, 0);
    world.log = Some(Vec::new());
    let mut exports = Vec::new();
    for process in 0..2 {
        world.open(0, process);
        world.pin(0, process, SOURCE, 6 * PAGE);
        let address = 0x10_0000 * (u64::from(process) + 1);
        world.pin(1, 0, address, 6 * PAGE);
        let export = world.export(1, 0, address, 6 * PAGE);
        let import = world.import(0, process, 1, export, 6 * PAGE);
        exports.push(export.0);
        world.submit(
            0,
            process,
            &notifying_send(import, 64, SOURCE, 5 * PAGE, 5),
            &[],
        );
        world.serve(0, process);
    }
    world.settle();
    let owners: Vec<_> = world
        .log
        .take()
        .unwrap()
        .iter()
        .map(|(_, _, sent)| sent.of.unwrap().0)
        .collect();
    assert_eq!(owners, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    let told = world.take_told(1);
    assert_eq!(told.len(), 2);
    for (completion, expected) in told.iter().zip(exports) {
        let Completion::Notification {
            export,
            offset,
            length,
            ..
        } = completion
        else {
            panic!("{completion:?}");
        };
        assert_eq!((*export, *offset, *length), (expected, 64, 5 * PAGE));
    }
}

#[test]
fn more_fetches_than_may_be_under_way_wait_and_are_all_served() {
    let (mut world, import, _) = pair(8, 0x7000, PAGE);
    world.poke(1, 0, 0x7000, &pattern(3, PAGE));
    world.pin(0, 0, FETCHED, PAGE);
    for at in 0..200u32 {
        let place = u64::from(at) * 20;
        world.submit(0, 0, &fetch(import, place, FETCHED + place, 20, at), &[]);
    }
    // All that can be asked is asked before anything is answered.
    while world.serve(0, 0) || world.transmit(0) {}
    assert_eq!(world.on_wire(0, 1), 32);
    world.settle();
    assert_eq!(world.peek(0, 0, FETCHED, 4000), pattern(3, PAGE)[..4000]);
    let (done, failed) = words(&world.take_told(0));
    assert_eq!((done, failed), ((0..200).collect(), vec![]));
}
