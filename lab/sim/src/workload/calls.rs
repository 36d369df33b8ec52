//! The calls of programs.

use mapwire_node::{ExportRequest, ImportError};
use mapwire_translation::PageRange;
use mapwire_vmmc::{RequestId, VmmcError};
use mapwire_wire::{
    Atomic, AtomicOp, CommandRepr, Key, NodeId, Refusal, Rights, SHORT_BYTES, SHORT_SIGNAL_BYTES, Signal, SignalOp,
    Width,
};

use super::{Call, Callers, Deed, Held, Program, keeps_place, place_of_buffer, place_of_export};
use crate::canary::Canary;
use crate::checks::atomics::Adds;
use crate::checks::bounds::{Instance, LANE_DATA, SLOTS, STATIC_BYTES, WORD_OFFSET};
use crate::checks::completions::{Pending, Work};
use crate::checks::delivery::{Sent, differs, pattern};
use crate::checks::forgery::{Forged, Kind};
use crate::checks::importers::{self, Allowed, Asked};
use crate::checks::violation;
use crate::cluster::{Cluster, Observer};
use crate::coverage::Condition;
use crate::random::Random;

/// Fills a buffer that its program may use again.
const USED: u8 = 0xa5;
/// Commands that a program lets wait in its queue.
pub(super) const MOST_QUEUED: usize = 16;

/// Short sends that follow each other without a pause, at most.
const MOST_IN_BURST: u64 = 8;

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
            let text = format!("{}: {id} cannot be revoked: {error}", at.node);
            self.violated(cluster.now_ns(), violation("bounds", text));
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

    fn import(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let at = self.programs[program].at;
        let lane = random.below(crate::checks::bounds::LANES as u64) as usize;
        // Those that have a lane at it are those at which it has one.
        let exporter = self.lane_owner(program, lane);
        let slot = random.below(SLOTS as u64) as usize;
        let Program { held, asked, .. } = &self.programs[program];
        let has = held.iter().any(|held| {
            let instance = &self.instances[held.instance];
            instance.exporter == self.programs[exporter].at && instance.slot == slot
        });
        let is_asked = |other: &Asked| (other.exporter, other.slot) == (exporter, slot);
        if exporter == program || has || asked.values().any(is_asked) {
            return;
        }
        if self.lane_of(exporter, program).is_none() || asked.len() > 8 {
            return;
        }
        let from = self.programs[exporter].at;
        // A forged packet is under way for a right that this node must not get meanwhile.
        let is_for_right = |forged: &Forged| {
            let target = &self.instances[forged.target];
            matches!(forged.kind, Kind::Right | Kind::Former)
                && !forged.is_refused
                && forged.from == at.node
                && (target.exporter, target.slot) == (from, slot)
        };
        if self.forged.iter().any(is_for_right) {
            return;
        }
        let rights = *random.pick(&[Rights::ALL, Rights::STORE, Rights::FETCH]);
        let timeout_ns = random.spread(100_000, 20_000_000);
        let token = self.token(exporter, slot, random);
        let asked = Asked { exporter, slot, rights, token, at_ns: cluster.now_ns() };
        let now_ns = cluster.clock_ns(at.node);
        let (node, _) = cluster.parts(at.node);
        let name = format!("export {slot}");
        match node.ask_import(now_ns, at.process, from, &name, rights, token, timeout_ns) {
            Ok(request) => {
                self.programs[program].asked.insert(request, asked);
                let wanted = self.wanted.entry((at.node, from, slot)).or_insert(Rights::NONE);
                *wanted = *wanted | rights;
                self.count(cluster.now_ns(), program, "import");
            }
            Err(error) => {
                let text = format!("{}: an import could not be asked for: {error}", at.node);
                self.violated(cluster.now_ns(), violation("completions", text));
            }
        }
    }

    /// What a program shows that imports: the token of an export that wants one, mostly.
    fn token(&self, exporter: usize, slot: usize, random: &mut Random) -> Option<Key> {
        let instance = self.programs[exporter].exports[slot]?;
        let Allowed::Token(mut key) = self.instances[instance].importers else { return None };
        match random.below(10) {
            0 => return None,
            1..4 => key.0[random.below(16) as usize] ^= 1 << random.below(8),
            _ => {}
        }
        Some(key)
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
            let text = format!("{node}: pages could not be had, and nothing refused them: {error}");
            self.violated(cluster.now_ns(), violation("pinned pages", text));
        }
    }

    /// An import has its outcome.
    pub(super) fn enter(&mut self, cluster: &mut Cluster, program: usize, request: RequestId) {
        let at = self.programs[program].at;
        let now_ns = cluster.now_ns();
        let Some(asked) = self.programs[program].asked.remove(&request) else {
            let text = format!("{}: import {} is over, and was not asked for", at.node, request.0);
            return self.violated(now_ns, violation("completions", text));
        };
        let (from, slot) = (self.programs[asked.exporter].at, asked.slot);
        let (node, _) = cluster.parts(at.node);
        let outcome = node.enter_import(at.process, request);
        let crashed = self.crashed[usize::from(from.node.0)];
        let wrong = match outcome {
            None => Some("has no outcome".to_owned()),
            Some(Ok((id, grant))) => {
                // A grant of a former incarnation may come late.
                let is_it = |instance: &Instance| {
                    instance.exporter == from && instance.id == grant.export && instance.key == grant.key
                };
                let number = self.instances.iter().rposition(is_it);
                match number.map(|number| (number, &self.instances[number])) {
                    Some((number, instance))
                        if instance.exporter == from && instance.slot == slot && grant.length == instance.length =>
                    {
                        let may = importers::may_have(at.node, &asked, grant.rights, instance);
                        if instance.importers != Allowed::All {
                            self.coverage.note(Condition::Granted);
                        }
                        let is_dead = node.nic().imported(id).is_none_or(|import| import.revoked);
                        self.programs[program].held.push(Held { id, instance: number, grant, is_dead });
                        self.instances[number].is_granted = true;
                        self.note(now_ns, may);
                        self.count(cluster.now_ns(), program, "imported");
                        None
                    }
                    _ => Some(format!("was granted as {grant:?}")),
                }
            }
            Some(Err(ImportError::Vmmc(error))) => match error {
                VmmcError::TimedOut { .. } => None,
                VmmcError::PeerGone { .. } if crashed => None,
                VmmcError::Refused { reason: reason @ (Refusal::NoRight | Refusal::NotPermitted), .. } => {
                    self.check_refused(at.node, &asked, reason, now_ns);
                    None
                }
                VmmcError::Refused { reason: Refusal::Revoked, .. } => None,
                error => Some(format!("failed: {error}")),
            },
            Some(Err(ImportError::Nic(error))) => Some(format!("could not be entered: {error}")),
        };
        if let Some(wrong) = wrong {
            let text = format!("{}: import {} {wrong}", at.node, request.0);
            self.violated(now_ns, violation("completions", text));
        }
        cluster.settle(at.node, self);
    }

    /// An import was refused: one of the exports that it may have been about must be why.
    fn check_refused(&mut self, by: NodeId, asked: &Asked, reason: Refusal, now_ns: u64) {
        let exporter = self.programs[asked.exporter].at;
        let was_there = |instance: &&Instance| {
            (instance.exporter, instance.slot) == (exporter, asked.slot)
                && instance.until_ns.is_none_or(|until_ns| until_ns >= asked.at_ns)
        };
        let found = self.instances.iter().filter(was_there).cloned();
        let outcome = importers::is_refused(by, asked, reason, found);
        if let Some(condition) = self.note(now_ns, outcome) {
            self.coverage.note(condition);
        }
    }

    /// Whether no command uses an import.
    fn is_idle(&self, cluster: &Cluster, program: usize, held: &Held) -> bool {
        let Program { at, words, .. } = &self.programs[program];
        let mut pending = words.iter();
        cluster.queued_commands(*at) == 0 && pending.all(|(_, pending)| pending.import != held.id)
    }

    fn release(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let count = self.programs[program].held.len();
        if count == 0 {
            return;
        }
        let index = random.below(count as u64) as usize;
        self.release_held(cluster, program, index);
    }

    fn release_held(&mut self, cluster: &mut Cluster, program: usize, index: usize) {
        let held = self.programs[program].held[index];
        if !self.is_idle(cluster, program, &held) {
            return;
        }
        let at = self.programs[program].at;
        self.programs[program].held.swap_remove(index);
        let is_kept = cluster.canary() == Some(Canary::KeptImport);
        let (node, _) = cluster.parts(at.node);
        if !is_kept {
            node.release_import(at.process, held.id, &held.grant);
        }
        self.count(cluster.now_ns(), program, "release");
    }

    /// Gives back imports whose exports are revoked or gone.
    fn give_back_dead(&mut self, cluster: &mut Cluster, program: usize) {
        for index in (0..self.programs[program].held.len()).rev() {
            if self.programs[program].held[index].is_dead {
                self.release_held(cluster, program, index);
            }
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
    ) -> (u64, u64, bool, Option<Signal>) {
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
        (offset, length, notify, signal)
    }

    /// Notes a message in the order of its stream.
    fn note_sent(&mut self, program: usize, held: &Held, sent: Sent) {
        let stream = self.streams.entry((program, held.grant.from.node)).or_default();
        let number = stream.sent;
        let incarnation = self.incarnations[usize::from(self.programs[program].at.node.0)];
        stream.submit(Sent { number, incarnation, ..sent });
    }

    fn short_send(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let at = self.programs[program].at;
        let held = self.pick(program, Rights::STORE, random);
        let Some(held) = held.filter(|_| cluster.queued_commands(at) < MOST_QUEUED) else { return };
        let (offset, length, notify, signal) = self.draw_send(program, &held, SHORT_BYTES as u64, None, random);
        let seed = random.next();
        let mut data = [0; SHORT_BYTES];
        let data = &mut data[..length as usize];
        pattern(seed, 0, data);
        let command = CommandRepr::ShortSend { import: held.id, offset, length: length as u32, notify, signal };
        if let Err(error) = cluster.submit(at, &command, data) {
            let text = format!("{command:?} is not a command: {error}");
            return self.violated(cluster.now_ns(), violation("completions", text));
        }
        let sent = Sent {
            number: 0,
            instance: held.instance,
            offset,
            length,
            arrived: 0,
            signal,
            notify,
            seed,
            is_given_up: false,
            incarnation: 0,
        };
        self.note_sent(program, &held, sent);
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
        if let Err(error) = cluster.submit(at, command, &[]) {
            let text = format!("{command:?} is not a command: {error}");
            self.violated(cluster.now_ns(), violation("completions", text));
        }
        if cluster.canary() == Some(Canary::EarlyRelease) {
            cluster.parts(at.node).0.release(at.process, word);
        }
    }

    /// Sends; if `wanted`, so many bytes, from so far behind the start of a page.
    fn long_send(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random, wanted: Option<(u64, u64)>) {
        let at = self.programs[program].at;
        let Some(held) = self.pick(program, Rights::STORE, random) else { return };
        let (offset, length, notify, signal) =
            self.draw_send(program, &held, self.config.lane_bytes, wanted.map(|it| it.0), random);
        let shift = wanted.map_or_else(|| random.below(512) * 8, |it| it.1);
        let Some((word, address)) = self.hold(cluster, program, length, shift) else { return };
        let seed = random.next();
        let mut data = vec![0; length as usize];
        pattern(seed, 0, &mut data);
        cluster.parts(at.node).1.write(at.process.0, address, &data);
        let sent = Sent {
            number: 0,
            instance: held.instance,
            offset,
            length,
            arrived: 0,
            signal,
            notify,
            seed,
            is_given_up: false,
            incarnation: 0,
        };
        self.note_sent(program, &held, sent);
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
                let text = format!("{}: {:?} is done", at.node, pending.work);
                self.violated(now_ns, violation("forgery", text));
            }
            Work::Fetch { offset, .. } => {
                let seed = self.instances[pending.instance].seed;
                if let Some(differs) = differs(seed, offset, &bytes) {
                    let text = format!("{}: byte {differs} of a fetch is not what was exported", at.node);
                    self.violated(now_ns, violation("delivery", text));
                }
                self.coverage.note(Condition::Fetched);
            }
            Work::Flush { sent } => {
                self.coverage.note_many(Condition::Flushed, u64::from(sent > 0));
                let to = self.instances[pending.instance].exporter.node;
                let stream = self.streams.get(&(program, to));
                let missing = stream.and_then(|stream| stream.missing(sent, |sent| self.may_fail(sent)));
                if let Some(missing) = missing {
                    let text =
                        format!("{}: a flush of {to} is done, and message {} has not arrived", at.node, missing.number);
                    self.violated(now_ns, violation("delivery", text));
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
