//! A node between a peer that sends arbitrary packets and an honest NIC whose processes give arbitrary commands, while exports,
//! processes and the peer go.
//!
//! [`Attack::act`] does one thing at random and checks the invariants; [`Attack::finish`] checks that honest processes are still
//! served.

#[path = "../../../../tests/hostile.rs"]
mod hostile;

use crate::world::random::Random;
use crate::world::{PAGE, Sent, World, add, fetch, long_send, pattern, words};
use hostile::{Known, Wanted, atomic, command, entry, near};
use mapwire_nic::{Completion, Landing, Rejection};
use mapwire_translation::Frame;
use mapwire_wire::{CommandRepr, Endpoint, ExportId, FetchId, ImportId, Key, NodeId, ProcessId};

/// The honest NIC, the node that is attacked, and the peer.
const HONEST: u16 = 0;
const VICTIM: u16 = 1;
const PEER: u16 = 2;

/// Memory of the commanding processes.
const HERE: u64 = 0x10_0000;
const HERE_BYTES: u64 = 4 * PAGE;
/// The export of the victim's process 0; its first and last page are exported in part.
const THERE: u64 = 0x40_0010;
const LENGTH: u64 = 2 * PAGE + 40;
/// Buffer to which the export may be redirected.
const LANDING: Landing = Landing { address: 0x50_0020, length: PAGE };
/// Destination of the victim's own fetches.
const FETCHED: u64 = 0x60_0008;
const FETCHED_BYTES: u64 = PAGE + 100;
/// Most memory that the victim's NIC may take, whatever happens.
const MEMORY_BYTES: u64 = 512 << 10;

/// Percentage of packets or commands with a flipped bit.
const FLIPS: u64 = 30;

pub(crate) struct Attack {
    pub(crate) world: World,
    export: (ExportId, Key),
    /// Contents of the export's memory, while it is revoked.
    revoked: Option<Vec<u8>>,
    import: ImportId,
    /// The victim's import of memory of the peer.
    asking: ImportId,
    /// Sequence number that is due from the peer.
    due: u32,
    /// The victim's last fetch that the peer saw.
    asked: Option<(FetchId, Key, u64)>,
    gone: bool,
    /// Commands with a completion word that were taken from the honest node's processes, and words reported to them.
    commanded: u64,
    told: u64,
}

impl Attack {
    pub(crate) fn new(mut random: Random) -> Self {
        let (percent, slow) = (random.below(40), random.chance(50));
        let mut world = World::forgetful(3, random, percent, false);
        world.slow_moves = slow;
        for process in [0, 1] {
            world.open(VICTIM, process);
            world.pin(VICTIM, process, THERE - PAGE, LENGTH + 2 * PAGE);
            world.pin(VICTIM, process, LANDING.address, LANDING.length);
            world.pin(VICTIM, process, FETCHED, FETCHED_BYTES);
        }
        let export = world.export(VICTIM, 0, THERE, LENGTH);
        let theirs = (ExportId(0x1_0000), Key([9; 16]));
        let asking = world.import(VICTIM, 0, PEER, theirs, LENGTH);
        for process in [0, 1] {
            world.open(HONEST, process);
            world.pin(HONEST, process, HERE, HERE_BYTES);
        }
        let import = world.import(HONEST, 0, VICTIM, export, LENGTH);
        Self { world, export, revoked: None, import, asking, due: 0, asked: None, gone: false, commanded: 0, told: 0 }
    }

    /// Does one thing at random.
    pub(crate) fn act(&mut self) {
        match self.world.random.below(32) {
            0..10 => self.attack(),
            10..17 => self.command(),
            17 | 18 => self.ask(),
            19..23 => {
                self.transmit(HONEST);
                self.world.receive(HONEST, VICTIM);
            }
            23..26 => {
                self.transmit(VICTIM);
                self.world.receive(VICTIM, HONEST);
            }
            26 => _ = self.world.do_move(VICTIM) | self.world.do_move(HONEST),
            27 => _ = self.world.serve_misses(VICTIM) | self.world.serve_misses(HONEST),
            28 => self.revoke_or_export(),
            29 => {
                let landing = self.world.random.chance(50).then_some(LANDING);
                let _ = self.world.nic(VICTIM).redirect(self.export.0, landing);
            }
            30 => self.close(),
            _ if self.world.random.chance(5) => {
                self.gone = true;
                self.world.nic(VICTIM).handle_peer_gone(NodeId(PEER));
                self.listen();
            }
            _ => self.listen(),
        }
        self.check();
    }

    fn transmit(&mut self, node: u16) {
        for to in [HONEST, VICTIM, PEER] {
            self.world.nic(node).handle_transmit_ready(NodeId(to));
        }
        self.world.transmit(node);
    }

    /// The peer takes what it was sent, and learns from it.
    fn listen(&mut self) {
        for sent in core::mem::take(self.world.wires.entry((VICTIM, PEER)).or_default()) {
            self.asked = hostile::asked(&sent.header, &sent.payload).or(self.asked);
        }
    }

    /// The peer sends a packet.
    fn attack(&mut self) {
        let known = Known { export: self.export, length: LENGTH, asked: self.asked, flips: FLIPS };
        let random = &mut self.world.random;
        let repr = known.packet(random);
        let (header, payload) = known.emit(random, self.due, &repr);
        let is_due = header.sequence.get() == self.due;
        let wire = self.world.wires.entry((PEER, VICTIM)).or_default();
        wire.push_back(Sent::plain(header, payload));
        while self.world.on_wire(PEER, VICTIM) > 0 {
            self.world.receive(PEER, VICTIM);
        }
        if is_due {
            self.due = self.due.wrapping_add(1);
        }
    }

    /// A process of the honest node writes a command: process 1 has imported nothing.
    fn command(&mut self) {
        let random = &mut self.world.random;
        let process = ProcessId(random.below(2) as u16);
        let wanted = Wanted {
            import: match random.below(8) {
                0 => ImportId(random.next() as u32),
                _ => self.import,
            },
            import_bytes: LENGTH,
            address: HERE.wrapping_add(near(random, HERE_BYTES)),
            length: near(random, LENGTH),
            completion: random.below(100) as u32,
            to: Endpoint::first_of(NodeId(VICTIM)),
        };
        let (command, data) = command(random, &wanted);
        let Some((header, inline)) = entry(random, FLIPS, &command, &data) else {
            return;
        };
        let nic = self.world.nic(HONEST);
        if nic.accepts_command(process) {
            nic.handle_command(process, &header, &inline);
            self.commanded += 1;
        }
    }

    /// The victim's process 0 fetches from the peer, updates words of it and stores there.
    fn ask(&mut self) {
        let random = &mut self.world.random;
        let length = random.within(1, FETCHED_BYTES.min(LENGTH));
        let command = match random.below(5) {
            0 | 1 => fetch(self.asking, 0, FETCHED, length, 1),
            2 => CommandRepr::Atomic {
                import: self.asking,
                offset: 8,
                // Spans two pages.
                address: FETCHED + PAGE - 12,
                atomic: atomic(random),
                completion: 3,
            },
            _ => long_send(self.asking, 0, THERE - 8, length, 2),
        };
        self.world.submit(VICTIM, 0, &command, &[]);
        self.world.serve(VICTIM, 0);
        self.transmit(VICTIM);
        self.listen();
    }

    fn revoke_or_export(&mut self) {
        if self.revoked.take().is_some() {
            self.export = self.world.export(VICTIM, 0, THERE, LENGTH);
            self.import = self.world.import(HONEST, 0, VICTIM, self.export, LENGTH);
            return;
        }
        self.world.nic(VICTIM).revoke(self.export.0).unwrap();
        // Moves given before may still be done.
        while self.world.do_move(VICTIM) {}
        self.revoked = Some(self.world.peek(VICTIM, 0, THERE, LENGTH));
    }

    /// A process goes with its memory, and a new one replaces it.
    fn close(&mut self) {
        let random = &mut self.world.random;
        let (node, process, start, length) = if random.chance(50) {
            (HONEST, random.below(2) as u16, HERE, HERE_BYTES)
        } else {
            (VICTIM, 1, THERE - PAGE, LENGTH + 2 * PAGE)
        };
        while self.world.do_move(node) {}
        let frames: Vec<Frame> = self.world.frames(node, process, start, length);
        self.world.nic(node).close_process(ProcessId(process));
        self.world.drop_frames(node, &frames);
        self.world.open(node, process);
        self.world.pin(node, process, start, length);
        if node == VICTIM {
            self.world.pin(node, 1, LANDING.address, LANDING.length);
            self.world.pin(node, 1, FETCHED, FETCHED_BYTES);
        } else if process == 0 {
            self.import = self.world.import(HONEST, 0, VICTIM, self.export, LENGTH);
        }
    }

    fn check(&mut self) {
        self.world.collect(HONEST);
        self.world.collect(VICTIM);
        for told in self.world.take_told(HONEST) {
            self.told += u64::from(matches!(told, Completion::Done { .. } | Completion::Failed { .. }));
        }
        assert!(self.told <= self.commanded, "a command was told of twice");
        for told in self.world.take_told(VICTIM) {
            if let Completion::Rejected { from, reason } = told {
                let fair = matches!(reason, Rejection::Refused(_) | Rejection::UnknownHandler(_));
                assert!(from.0 == PEER || fair, "an honest NIC sent {reason:?}");
                assert!(
                    !self.gone || from.0 != PEER || reason == Rejection::UnknownNode,
                    "a packet of a node that is gone was looked at: {reason:?}"
                );
            }
        }
        let late = self.world.wires.get(&(VICTIM, PEER));
        let late = late.and_then(|wire| wire.front()).filter(|_| self.gone);
        assert!(late.is_none(), "sent to a node that is gone: {late:?}");
        self.world.nodes.iter_mut().for_each(|node| node.messages.clear());
        let export = core::iter::once(THERE..THERE + LENGTH).collect::<Vec<_>>();
        let fair = [LANDING.address..LANDING.address + LANDING.length, FETCHED..FETCHED + FETCHED_BYTES];
        for (process, start, length, fair) in [
            (0, THERE - PAGE, LENGTH + 2 * PAGE, &export[..]),
            (0, LANDING.address, LANDING.length, &fair),
            (0, FETCHED, FETCHED_BYTES, &fair),
            (1, THERE - PAGE, LENGTH + 2 * PAGE, &[]),
            (1, LANDING.address, LANDING.length, &[]),
            (1, FETCHED, FETCHED_BYTES, &[]),
        ] {
            let end = (start + length).next_multiple_of(PAGE);
            let start = start & !(PAGE - 1);
            let bytes = self.world.peek(VICTIM, process, start, end - start);
            for (line, bytes) in (start..).step_by(64).zip(bytes.chunks(64)) {
                if bytes == [0; 64] {
                    continue;
                }
                for (at, byte) in (line..).zip(bytes) {
                    assert!(
                        *byte == 0 || fair.iter().any(|fair| fair.contains(&at)),
                        "the byte at {at:#x} of process {process} is nobody's and changed"
                    );
                }
            }
        }
        if let Some(before) = &self.revoked {
            let now = self.world.peek(VICTIM, 0, THERE, LENGTH);
            assert!(*before == now, "a revoked export changed");
        }
        let victim = &self.world.nodes[usize::from(VICTIM)];
        assert_eq!(victim.memory.garbage_writes, 0);
        let used = victim.nic.memory().used_bytes();
        assert!(used <= MEMORY_BYTES, "{used} bytes of NIC memory are taken");
    }

    /// The peer is declared gone; everything settles, and an honest process is served.
    pub(crate) fn finish(mut self) {
        for node in [HONEST, VICTIM] {
            self.world.nic(node).handle_peer_gone(NodeId(PEER));
        }
        self.world.wires.retain(|&(from, to), _| from != PEER && to != PEER);
        self.world.settle();
        self.check();
        let world = &mut self.world;
        world.open(HONEST, 2);
        world.pin(HONEST, 2, HERE, 6 * PAGE);
        let data = pattern(7, LENGTH);
        world.poke(HONEST, 2, HERE, &data);
        let export = world.export(VICTIM, 0, THERE, LENGTH);
        let import = world.import(HONEST, 2, VICTIM, export, LENGTH);
        let back = HERE + 3 * PAGE;
        let old = back + LENGTH.next_multiple_of(8);
        for command in
            [long_send(import, 0, HERE, LENGTH, 1), fetch(import, 0, back, LENGTH, 2), add(import, 16, old, 0, 3)]
        {
            world.submit(HONEST, 2, &command, &[]);
            world.settle();
        }
        assert_eq!(words(&world.take_told(HONEST)), (vec![1, 2, 3], vec![]));
        assert!(world.peek(HONEST, 2, old, 8) == data[16..24]);
        assert!(world.peek(VICTIM, 0, THERE, LENGTH) == data);
        assert!(world.peek(HONEST, 2, back, LENGTH) == data);
    }
}

#[cfg(test)]
#[test]
fn whatever_a_peer_and_processes_do_only_exported_memory_changes_and_others_are_served() {
    crate::world::random::for_seeds(40, |seed| {
        let mut attack = Attack::new(Random::new(seed));
        for _ in 0..500 {
            attack.act();
        }
        attack.finish();
    });
}
