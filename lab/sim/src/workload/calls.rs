//! The calls of programs.

use mapwire_node::ExportRequest;
use mapwire_translation::PageRange;
use mapwire_wire::{
    Atomic, AtomicOp, CommandRepr, Endpoint, Key, NodeId, Rights, SHORT_BYTES, SHORT_SIGNAL_BYTES, Signal, SignalOp,
    Width,
};

use super::{Call, Callers, Deed, Held, Program, keeps_place, place_of_buffer, place_of_export};
use crate::canary::Canary;
use crate::checks::allowed::Allowed;
use crate::checks::atomics::Adds;
use crate::checks::bounds::{Instance, LANE_DATA, SLOTS, STATIC_BYTES, WORD_OFFSET};
use crate::checks::completions::{Pending, Work};
use crate::checks::delivery::{Sent, differs, pattern};
use crate::checks::forgery::Kind;
use crate::cluster::{Cluster, Observer};
use crate::coverage::Condition;
use crate::random::Random;

/// Fills a buffer that its program may use again.
const USED: u8 = 0xa5;
/// Commands that a program lets wait in its queue.
pub(super) const MOST_QUEUED: usize = 16;

/// Short sends that follow each other without a pause, at most.
const MOST_IN_BURST: u64 = 8;

/// A send as it was drawn.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    offset: u64,
    length: u64,
    notify: bool,
    signal: Option<Signal>,
}

impl Callers {
    /// A program makes a call. What it is depends on the call's seed and on what the program has, unless the call says so itself.
    /// Whether the program must make it again, later: other transfers have all it needs.
    pub(super) fn call(&mut self, cluster: &mut Cluster, call: &Call) -> bool {
        let program = call.process as usize;
        let at = self.programs[program].at;
        if !cluster.is_alive(at.node) {
            return false;
        }
        let mut random = Random::new(call.seed);
        self.revoke_late(cluster, program);
        self.give_back_dead(cluster, program);
        let mut again = false;
        match call.deed {
            None => self.drawn(cluster, program, &mut random),
            Some(Deed::Export) => self.export(cluster, program, &mut random, Allowed::All),
            Some(Deed::Import) => self.import(cluster, program, &mut random),
            Some(Deed::Send { .. } | Deed::Fetch { .. })
                if self.programs[program].words.free().is_none() || cluster.queued_commands(at) >= MOST_QUEUED =>
            {
                again = true;
            }
            Some(Deed::Send { length, shift }) => {
                self.long_send(cluster, program, &mut random, Some((length, shift)));
            }
            Some(Deed::Fetch { length, shift }) => {
                self.fetch(cluster, program, &mut random, Some((length, shift)));
            }
        }
        cluster.settle(at.node, self);
        again
    }

    fn drawn(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        if cluster.is_forging(self.programs[program].at.node) && random.chance(40) {
            return self.be_hostile(cluster, program, random);
        }
        match random.below(100) {
            0..15 => {
                let importers = Allowed::draw(random, cluster.config().nodes);
                self.export(cluster, program, random, importers);
            }
            15..17 => self.unexport(cluster, program, random),
            17 => self.export_mapped(cluster, program, random),
            18..20 => self.redirect(cluster, program, random),
            20..40 => self.import(cluster, program, random),
            40..42 => self.release(cluster, program, random),
            42..54 => self.short_send(cluster, program, random),
            // They come one behind the other, and so do their notifications and signals.
            54..58 => {
                for _ in 0..random.within(2, MOST_IN_BURST) {
                    self.short_send(cluster, program, random);
                }
            }
            58..76 => self.long_send(cluster, program, random, None),
            76..86 => self.fetch(cluster, program, random, None),
            86..91 => self.flush(cluster, program, random),
            _ => self.add(cluster, program, random),
        }
    }

    fn export(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random, importers: Allowed) {
        let Some(slot) = (0..SLOTS).find(|&slot| self.programs[program].exports[slot].is_none()) else { return };
        let at = self.programs[program].at;
        let address = place_of_export(slot, false, random.below(512) * 8);
        let length = self.export_bytes();
        let seed = random.next();
        let rights = match random.below(8) {
            0 => Rights::STORE,
            1 => Rights::FETCH,
            _ => Rights::ALL,
        };
        let mut key = [1; 16];
        key[..8].copy_from_slice(&random.next().to_le_bytes());
        let told = match cluster.canary() {
            Some(Canary::AnyImporter) => Allowed::All.told(),
            _ => importers.told(),
        };
        let (node, memory) = cluster.parts(at.node);
        let mut bytes = vec![0; length as usize];
        pattern(seed, 0, &mut bytes[..STATIC_BYTES as usize]);
        memory.write(at.process.0, address, &bytes);
        let request = ExportRequest {
            name: format!("export {slot}"),
            key: Key(key),
            address,
            length,
            rights,
            importers: told,
            direct: None,
            pins_late: false,
        };
        let refused = memory.refused_pins();
        let id = match node.export(at.process, memory, request) {
            Ok(id) => id,
            Err(error) => return self.lacks_pages(cluster, at.node, refused, &error),
        };
        let number = self.instances.len();
        self.instances.push(Instance {
            exporter: at,
            slot,
            id,
            seed,
            address,
            length,
            rights,
            key: Key(key),
            importers,
            until_ns: None,
            is_granted: false,
            landing: None,
            is_redirected: false,
            stands: true,
            adds: Adds::default(),
        });
        self.by_id.insert((at.node, id), number);
        self.programs[program].exports[slot] = Some(number);
        self.count(cluster.now_ns(), program, "export");
    }

    fn unexport(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let slot = random.below(SLOTS as u64) as usize;
        let Some(number) = self.programs[program].exports[slot].take() else { return };
        let (at, id) = (self.instances[number].exporter, self.instances[number].id);
        self.instances[number].stands = false;
        self.instances[number].until_ns = Some(cluster.now_ns());
        self.count(cluster.now_ns(), program, "unexport");
        let (address, length) = (self.instances[number].address, self.instances[number].length);
        let cluster_canary = cluster.canary();
        if cluster_canary == Some(Canary::LateRevoke) {
            self.late_revokes.push((program, id));
            return;
        }
        let (node, memory) = cluster.parts(at.node);
        if cluster_canary == Some(Canary::KeptPages) {
            let range = PageRange::covering(address, length);
            // No word is over that is not there. Where it cannot be held it is not pinned.
            let _ = range.map(|range| node.hold(at.process, memory, u32::MAX, range));
        }
        if let Err(error) = node.unexport(at.process, id) {
            self.broke(cluster.now_ns(), "bounds", format!("{}: {id} cannot be revoked: {error}", at.node));
        }
    }

    /// Revokes what a canary had left.
    fn revoke_late(&mut self, cluster: &mut Cluster, program: usize) {
        while let Some(at) = self.late_revokes.iter().position(|late| late.0 == program) {
            let (_, id) = self.late_revokes.swap_remove(at);
            let of = self.programs[program].at;
            let (node, _) = cluster.parts(of.node);
            // It is there; and if it were not, there would be nothing to do.
            let _ = node.unexport(of.process, id);
        }
    }

    fn redirect(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let slot = SLOTS - 1;
        let Some(number) = self.programs[program].exports[slot] else { return };
        let (at, id) = (self.instances[number].exporter, self.instances[number].id);
        let length = self.instances[number].length;
        // One landing for each export: what lies at an address stays the same.
        let shift = self.instances[number].seed % 512 * 8;
        let address = place_of_export(slot, true, shift);
        let to = random.chance(60).then_some(mapwire_nic::Landing { address, length });
        let (node, memory) = cluster.parts(at.node);
        let mut bytes = vec![0; STATIC_BYTES as usize];
        pattern(self.instances[number].seed, 0, &mut bytes);
        memory.write(at.process.0, address, &bytes);
        let refused = memory.refused_pins();
        match node.redirect(at.process, memory, id, to) {
            Ok(()) => {
                self.instances[number].landing = Some(address);
                self.instances[number].is_redirected = to.is_some();
                self.count(cluster.now_ns(), program, "redirect");
            }
            Err(error) => self.lacks_pages(cluster, at.node, refused, &error),
        }
    }

    /// Pages could not be had: the limit on pinned pages, or a pinner that refuses. The program tries something else.
    pub(super) fn lacks_pages(
        &mut self,
        cluster: &Cluster,
        node: NodeId,
        refused: u64,
        error: &dyn core::fmt::Display,
    ) {
        let now_refused = cluster.refused_pins(node);
        if now_refused > refused {
            self.coverage.note(Condition::PinsRefused);
        } else if self.config.is_limited {
            self.coverage.note(Condition::PinsLimited);
        } else {
            self.broke(
                cluster.now_ns(),
                "pinned pages",
                format!("{node}: pages could not be had, and nothing refused them: {error}"),
            );
        }
    }

    /// An import with a right.
    pub(super) fn pick(&self, program: usize, rights: Rights, random: &mut Random) -> Option<Held> {
        let held = &self.programs[program].held;
        let usable = |held: &&Held| !held.is_dead && held.grant.rights.contains(rights);
        let count = held.iter().filter(usable).count();
        let index = random.below(count as u64) as usize;
        held.iter().filter(usable).nth(index).copied()
    }

    /// A range of the lane that a program has in an export, and a signal behind it, perhaps.
    fn draw_send(
        &mut self,
        program: usize,
        held: &Held,
        most: u64,
        exactly: Option<u64>,
        random: &mut Random,
    ) -> Drawn {
        let exporter = self.index(held.grant.from);
        let lane = self.lane_of(exporter, program).unwrap_or_default() as u64;
        let start = self.lane_offset(lane);
        let room = self.config.lane_bytes - LANE_DATA;
        let drawn =
            if most > SHORT_BYTES as u64 && random.chance(10) { room } else { random.spread(1, most.min(room)) };
        let mut length = exactly.map_or(drawn, |exactly| exactly.clamp(1, room));
        let mut within = random.below(room - length + 1);
        if random.chance(12) {
            within = room - length;
        }
        let offset = start + LANE_DATA + within;
        let notify = random.chance(30);
        let signal = random.chance(30).then(|| Signal {
            offset: start,
            value: random.next(),
            op: *random.pick(&[SignalOp::Set, SignalOp::Add, SignalOp::Or]),
        });
        if signal.is_some() && most <= SHORT_BYTES as u64 {
            length = length.min(SHORT_SIGNAL_BYTES as u64);
        }
        if offset + length == self.export_bytes() {
            self.coverage.note(Condition::AtTheEnd);
        }
        Drawn { offset, length, notify, signal }
    }

    /// Notes a message in the order of its stream.
    fn note_sent(&mut self, program: usize, held: &Held, drawn: Drawn, seed: u64) {
        let Drawn { offset, length, notify, signal } = drawn;
        let stream = self.streams.entry((program, held.grant.from.node)).or_default();
        stream.submit(Sent {
            number: stream.sent,
            instance: held.instance,
            offset,
            length,
            arrived: 0,
            signal,
            notify,
            seed,
            is_given_up: false,
            incarnation: self.incarnations[usize::from(self.programs[program].at.node.0)],
        });
    }

    /// Puts a command into the queue of a process.
    pub(super) fn hand_over(&mut self, cluster: &mut Cluster, at: Endpoint, command: &CommandRepr, data: &[u8]) {
        if let Err(error) = cluster.submit(at, command, data) {
            self.broke(cluster.now_ns(), "completions", format!("{command:?} is not a command: {error}"));
        }
    }

    fn short_send(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let at = self.programs[program].at;
        let held = self.pick(program, Rights::STORE, random);
        let Some(held) = held.filter(|_| cluster.queued_commands(at) < MOST_QUEUED) else { return };
        let drawn = self.draw_send(program, &held, SHORT_BYTES as u64, None, random);
        let Drawn { offset, length, notify, signal } = drawn;
        let seed = random.next();
        let mut data = [0; SHORT_BYTES];
        let data = &mut data[..length as usize];
        pattern(seed, 0, data);
        let command = CommandRepr::ShortSend { import: held.id, offset, length: length as u32, notify, signal };
        self.hand_over(cluster, at, &command, data);
        self.note_sent(program, &held, drawn, seed);
        self.count(cluster.now_ns(), program, "short send");
    }

    /// A free word with its buffer, of whose pages the node knows that they are in use.
    pub(super) fn hold(
        &mut self,
        cluster: &mut Cluster,
        program: usize,
        length: u64,
        shift: u64,
    ) -> Option<(u32, u64)> {
        let Program { at, words, .. } = &self.programs[program];
        let at = *at;
        let word = words.free()?;
        if cluster.queued_commands(at) >= MOST_QUEUED {
            return None;
        }
        let address = place_of_buffer(word, shift);
        let range = PageRange::covering(address, length).ok()?;
        let (node, memory) = cluster.parts(at.node);
        let refused = memory.refused_pins();
        if let Err(error) = node.hold(at.process, memory, word, range) {
            self.lacks_pages(cluster, at.node, refused, &error);
            return None;
        }
        Some((word, address))
    }

    /// Submits a command whose pages are held.
    pub(super) fn submit(
        &mut self,
        cluster: &mut Cluster,
        program: usize,
        word: u32,
        pending: Pending,
        command: &CommandRepr,
    ) {
        let at = self.programs[program].at;
        self.programs[program].words.submit(word, pending);
        self.hand_over(cluster, at, command, &[]);
        if cluster.canary() == Some(Canary::EarlyRelease) {
            cluster.parts(at.node).0.release(at.process, word);
        }
    }

    /// Sends; if `wanted`, so many bytes, from so far behind the start of a page.
    fn long_send(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random, wanted: Option<(u64, u64)>) {
        let at = self.programs[program].at;
        let Some(held) = self.pick(program, Rights::STORE, random) else { return };
        let drawn = self.draw_send(program, &held, self.config.lane_bytes, wanted.map(|it| it.0), random);
        let Drawn { offset, length, notify, signal } = drawn;
        let shift = wanted.map_or_else(|| random.below(512) * 8, |it| it.1);
        let Some((word, address)) = self.hold(cluster, program, length, shift) else { return };
        let seed = random.next();
        let mut data = vec![0; length as usize];
        pattern(seed, 0, &mut data);
        cluster.parts(at.node).1.write(at.process.0, address, &data);
        self.note_sent(program, &held, drawn, seed);
        let command =
            CommandRepr::LongSend { import: held.id, offset, address, length, notify, signal, completion: word };
        let pending = Pending { work: Work::Send, import: held.id, instance: held.instance, address, length };
        self.submit(cluster, program, word, pending, &command);
        self.count(cluster.now_ns(), program, "long send");
    }

    /// Fetches; if `wanted`, so many bytes, to so far behind the start of a page.
    fn fetch(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random, wanted: Option<(u64, u64)>) {
        let at = self.programs[program].at;
        let Some(held) = self.pick(program, Rights::FETCH, random) else { return };
        let drawn = random.spread(1, STATIC_BYTES);
        let length = wanted.map_or(drawn, |it| it.0.clamp(1, STATIC_BYTES));
        let offset = random.below(STATIC_BYTES - length + 1);
        let shift = wanted.map_or_else(|| random.below(512) * 8, |it| it.1);
        let Some((word, address)) = self.hold(cluster, program, length, shift) else { return };
        let used = vec![USED; length as usize];
        cluster.parts(at.node).1.write(at.process.0, address, &used);
        let command = CommandRepr::Fetch { import: held.id, offset, address, length, completion: word };
        let pending = Pending {
            work: Work::Fetch { offset, length, received: 0 },
            import: held.id,
            instance: held.instance,
            address,
            length,
        };
        self.submit(cluster, program, word, pending, &command);
        self.count(cluster.now_ns(), program, "fetch");
    }

    fn flush(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let at = self.programs[program].at;
        let Some(held) = self.pick(program, Rights::NONE, random) else { return };
        let Some(word) = self.programs[program].words.free() else { return };
        if cluster.queued_commands(at) >= MOST_QUEUED {
            return;
        }
        let stream = self.streams.get(&(program, held.grant.from.node));
        let sent = stream.map_or(0, |stream| stream.sent);
        let command = CommandRepr::Fetch { import: held.id, offset: 0, address: 0, length: 0, completion: word };
        let pending =
            Pending { work: Work::Flush { sent }, import: held.id, instance: held.instance, address: 0, length: 0 };
        self.submit(cluster, program, word, pending, &command);
        self.count(cluster.now_ns(), program, "flush");
    }

    fn add(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let Some(held) = self.pick(program, Rights::ALL, random) else { return };
        if !keeps_place(self.instances[held.instance].slot) {
            return;
        }
        let Some((word, address)) = self.hold(cluster, program, 8, random.below(512) * 8) else { return };
        self.instances[held.instance].adds.submitted += 1;
        let command = CommandRepr::Atomic {
            import: held.id,
            offset: WORD_OFFSET,
            address,
            atomic: Atomic { op: AtomicOp::Add, width: Width::Eight, operand: 1 },
            completion: word,
        };
        let pending = Pending { work: Work::Add, import: held.id, instance: held.instance, address, length: 8 };
        self.submit(cluster, program, word, pending, &command);
        self.count(cluster.now_ns(), program, "add");
    }

    /// A command is over: checks what it brought, and uses its buffer for something else.
    pub(super) fn over(&mut self, cluster: &mut Cluster, program: usize, pending: Pending, is_done: bool) {
        let at = self.programs[program].at;
        let now_ns = cluster.now_ns();
        let (_, memory) = cluster.parts(at.node);
        let mut bytes = vec![0; pending.length as usize];
        memory.read(at.process.0, pending.address, &mut bytes);
        let used = vec![USED; pending.length as usize];
        memory.write(at.process.0, pending.address, &used);
        if !is_done {
            let mut held = self.programs[program].held.iter_mut();
            if let Some(held) = held.find(|held| held.id == pending.import) {
                held.is_dead |= !self.instances[pending.instance].stands;
            }
            return;
        }
        self.coverage.note(Condition::Completed);
        match pending.work {
            // That its bytes were sent says nothing of what became of them.
            Work::Send | Work::Forged { kind: Kind::Part, .. } => {}
            Work::Forged { .. } | Work::Misused(_) => {
                self.broke(now_ns, "forgery", format!("{}: {:?} is done", at.node, pending.work));
            }
            Work::Fetch { offset, .. } => {
                let seed = self.instances[pending.instance].seed;
                if let Some(differs) = differs(seed, offset, &bytes) {
                    self.broke(
                        now_ns,
                        "delivery",
                        format!("{}: byte {differs} of a fetch is not what was exported", at.node),
                    );
                }
                self.coverage.note(Condition::Fetched);
            }
            Work::Flush { sent } => {
                self.coverage.note_many(Condition::Flushed, u64::from(sent > 0));
                let to = self.instances[pending.instance].exporter.node;
                let stream = self.streams.get(&(program, to));
                let missing = stream.and_then(|stream| stream.missing(sent, |sent| self.may_fail(sent)));
                if let Some(missing) = missing {
                    self.broke(
                        now_ns,
                        "delivery",
                        format!("{}: a flush of {to} is done, and message {} has not arrived", at.node, missing.number),
                    );
                }
            }
            Work::Add => {
                let old = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                self.coverage.note(Condition::Added);
                let outcome = self.instances[pending.instance].adds.answer(old);
                self.note(now_ns, outcome);
            }
        }
    }
}
