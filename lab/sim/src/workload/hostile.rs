//! Programs of a hostile or mistaken node: forged packets, and commands that their own node must refuse.

use mapwire_wire::{
    Atomic, AtomicOp, CommandRepr, ExportId, ImportId, Key, Rights, SHORT_SIGNAL_BYTES, Signal, SignalOp, Width,
};

use super::{Callers, Held};
use crate::canary::Canary;
use crate::checks::bounds::{BUFFER_SPAN, LANES_OFFSET, STRIP_OFFSET};
use crate::checks::completions::{Pending, Work};
use crate::checks::delivery::pattern;
use crate::checks::forgery::{Forged, Kind, Misuse, Misused};
use crate::cluster::{Cluster, Forgery};
use crate::random::Random;

/// Bytes that a forged packet stores or fetches at most: what fits between the word and the lanes.
const MOST_BYTES: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Store,
    Fetch,
    Add,
}

impl Form {
    const ALL: [Self; 3] = [Self::Store, Self::Fetch, Self::Add];

    const fn rights(self) -> Rights {
        match self {
            Self::Store => Rights::STORE,
            Self::Fetch => Rights::FETCH,
            Self::Add => Rights::ALL,
        }
    }
}

/// What a hostile command is submitted by.
struct Command {
    form: Form,
    import: ImportId,
    /// The export behind it, by the workload's number.
    instance: usize,
    offset: u64,
    length: u64,
    signal: Option<Signal>,
    work: Work,
}

impl Callers {
    /// A program makes a packet that is to be refused, or a command.
    pub(super) fn be_hostile(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        if random.chance(30) { self.misuse(cluster, program, random) } else { self.forge(cluster, program, random) }
    }

    fn forge(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        // The first kind, from one that is drawn on, for which there is an export.
        let drawn = random.below(Kind::ALL.len() as u64) as usize;
        // What a former self was granted is there seldom.
        let former = Kind::ALL.iter().position(|kind| *kind == Kind::Former);
        let first = former.filter(|_| random.chance(30)).unwrap_or(drawn);
        let form = *random.pick(&Form::ALL);
        let kinds = Kind::ALL.iter().cycle().skip(first).take(Kind::ALL.len());
        let mut found = None;
        for &kind in kinds {
            let form = match kind {
                Kind::Signal | Kind::Reply | Kind::Part => Form::Store,
                _ => form,
            };
            if let Some(held) = self.pick(program, form.rights(), random)
                && let Some(target) = self.target(cluster, program, &held, kind, form, random)
            {
                found = Some((kind, form, held, target));
                break;
            }
        }
        let Some((kind, form, held, (target, mut forgery))) = found else { return };
        let awaited = cluster.awaited(held.grant.from.node, self.programs[program].at.node);
        let awaited = awaited.filter(|_| kind == Kind::Reply);
        match (cluster.canary(), kind) {
            (Some(Canary::KeptGrant), Kind::Former) => {
                (forgery.export, forgery.key) = (held.grant.export, held.grant.key);
            }
            (Some(Canary::AnyReply), Kind::Reply) => {
                forgery.key = awaited.map_or(forgery.key, |awaited| awaited.reply_key);
            }
            (Some(Canary::AnyKey), Kind::Key | Kind::OtherKey) | (Some(Canary::StaleKey), Kind::StaleKey) => {
                forgery.key = self.instances[target].key
            }
            _ => {}
        }
        let length = match form {
            Form::Add => 8,
            _ => random.within(1, MOST_BYTES),
        };
        let packet_bytes = cluster.config().max_payload_bytes as u64;
        let length = match kind {
            // The second packet has a byte at the least.
            Kind::Part => packet_bytes + length,
            _ => awaited.map_or(length, |awaited| length.min(awaited.bytes)),
        };
        if let Some(awaited) = awaited {
            forgery.export = ExportId(0);
            forgery.answers = Some((awaited.fetch, length == awaited.bytes));
        }
        let bytes = self.instances[target].length;
        if kind == Kind::Range {
            // From the first byte that is too much to the first that is not there at all.
            forgery.offset = match form {
                Form::Add => bytes,
                _ => bytes - length + random.within(1, length),
            };
        }
        let (from, to) = (self.programs[program].at.node, held.grant.from.node);
        // A packet under way keeps what it is forged by: a place is used again long after.
        let of_pair = |other: &&Forged| (other.from, other.to) == (from, to);
        let places = (LANES_OFFSET - STRIP_OFFSET) / MOST_BYTES;
        let place = self.forged.iter().filter(of_pair).count() as u64 % places;
        let offset = STRIP_OFFSET + MOST_BYTES * place;
        if kind != Kind::Range {
            forgery.offset = offset;
        }
        let mut signal = None;
        let may_signal = form == Form::Store && kind != Kind::Reply;
        if may_signal && (kind == Kind::Signal || random.chance(30)) {
            // Of what is refused no signal is written either.
            let value = random.next();
            let op = SignalOp::Set;
            signal = Some(Signal { offset, value, op });
        }
        if kind == Kind::Signal {
            forgery.signal = Some(bytes);
        }
        let command = Command {
            form,
            import: held.id,
            instance: held.instance,
            offset,
            length,
            signal,
            work: Work::Forged { kind, target },
        };
        if !self.submit_hostile(cluster, program, &command, random) {
            return;
        }
        cluster.forge(from, to, offset, forgery);
        self.forged.push(Forged { from, to, kind, target, carrier: held.instance, is_refused: false });
        self.count(cluster.now_ns(), program, "forged packet");
    }

    /// The export that a forged packet names, and what the packet shows.
    fn target(
        &self,
        cluster: &Cluster,
        program: usize,
        held: &Held,
        kind: Kind,
        form: Form,
        random: &mut Random,
    ) -> Option<(usize, Forgery)> {
        let node = held.grant.from.node;
        let me = self.programs[program].at.node;
        let numbered = || self.instances.iter().enumerate();
        let of_node = || numbered().filter(|(_, instance)| instance.exporter.node == node);
        let standing = || of_node().filter(|(_, instance)| instance.stands);
        let pick =
            |found: Vec<usize>, random: &mut Random| if found.is_empty() { None } else { Some(*random.pick(&found)) };
        let numbers = |found: &mut dyn Iterator<Item = (usize, &crate::checks::bounds::Instance)>| {
            found.map(|(number, _)| number).collect::<Vec<usize>>()
        };
        let mut key: Option<Key> = None;
        let target = match kind {
            Kind::Range | Kind::Signal => held.instance,
            Kind::Part => {
                let packet_bytes = cluster.config().max_payload_bytes as u64;
                let most_bytes = held.grant.length.min(BUFFER_SPAN) - LANES_OFFSET;
                if packet_bytes + MOST_BYTES > most_bytes {
                    return None;
                }
                let mut wrong = self.instances[held.instance].key;
                wrong.0[random.below(16) as usize] ^= 1 << random.below(8);
                key = Some(wrong);
                held.instance
            }
            Kind::Reply => {
                let mut wrong = cluster.awaited(node, me)?.reply_key;
                wrong.0[random.below(16) as usize] ^= 1 << random.below(8);
                key = Some(wrong);
                held.instance
            }
            Kind::Former => {
                let former = &mut standing().filter(|(number, instance)| {
                    let had = self.former.get(&(me, *number));
                    let place = (me, instance.exporter, instance.slot);
                    had.is_some_and(|had| had.contains(form.rights())) && !self.wanted.contains_key(&place)
                });
                pick(numbers(former), random)?
            }
            Kind::Key => {
                let target = pick(numbers(&mut standing()), random)?;
                let mut wrong = self.instances[target].key;
                wrong.0[random.below(16) as usize] ^= 1 << random.below(8);
                key = Some(wrong);
                target
            }
            Kind::StaleExport => {
                let gone = &mut of_node().filter(|(_, instance)| !instance.stands);
                pick(numbers(gone), random)?
            }
            Kind::StaleKey => {
                let target = pick(numbers(&mut standing()), random)?;
                let of = &self.instances[target];
                let mut former = of_node().filter(|(number, instance)| {
                    *number < target && (instance.exporter, instance.slot) == (of.exporter, of.slot)
                });
                key = Some(former.next_back()?.1.key);
                target
            }
            Kind::OtherKey => {
                let target = pick(numbers(&mut standing()), random)?;
                let others = &mut standing().filter(|(number, _)| *number != target);
                let other = pick(numbers(others), random)?;
                key = Some(self.instances[other].key);
                target
            }
            Kind::Stranger => {
                let strange = &mut standing().filter(|(_, instance)| {
                    instance.is_granted
                        && !instance.importers.includes(me, None)
                        && instance.rights.contains(form.rights())
                        && matches!(instance.importers, crate::checks::allowed::Allowed::Nodes(_))
                });
                pick(numbers(strange), random)?
            }
            Kind::Right => {
                let lacking = &mut standing().filter(|(_, instance)| {
                    let place = (me, instance.exporter, instance.slot);
                    let asked = self.wanted.get(&place).copied().unwrap_or(Rights::NONE);
                    !instance.rights.contains(form.rights()) || (instance.is_granted && !asked.contains(form.rights()))
                });
                pick(numbers(lacking), random)?
            }
        };
        let instance = &self.instances[target];
        let forgery =
            Forgery { export: instance.id, key: key.unwrap_or(instance.key), offset: 0, signal: None, answers: None };
        Some((target, forgery))
    }

    /// A program asks its own node for what it may not do.
    fn misuse(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let what = *random.pick(&[Misuse::Range, Misuse::Import, Misuse::Right]);
        let form = *random.pick(&Form::ALL);
        let lacks = |held: &&Held| !held.is_dead && !held.grant.rights.contains(form.rights());
        let mine = &self.programs[program];
        let picked = match what {
            Misuse::Range => self.pick(program, form.rights(), random),
            Misuse::Right => mine.held.iter().find(lacks).copied(),
            Misuse::Import => {
                let others = self.programs.iter();
                let mut of_node =
                    others.filter(|other| other.at.node == mine.at.node && other.at.process != mine.at.process);
                of_node.find_map(|other| other.held.first()).copied()
            }
        };
        let Some(held) = picked else { return };
        let length = match form {
            Form::Add => 8,
            _ => random.within(1, MOST_BYTES),
        };
        let offset = match what {
            Misuse::Range if form == Form::Add => held.grant.length,
            Misuse::Range => held.grant.length - length + random.within(1, length),
            _ => STRIP_OFFSET,
        };
        let command = Command {
            form,
            import: held.id,
            instance: held.instance,
            offset,
            length,
            signal: None,
            work: Work::Misused(what),
        };
        if self.submit_hostile(cluster, program, &command, random) {
            if form == Form::Store {
                let at = self.programs[program].at;
                self.misused.push(Misused { by: at, what, import: held.id, instance: held.instance });
            }
            self.count(cluster.now_ns(), program, "command that is not allowed");
        }
    }

    /// Submits a hostile command. False if there is no room for it.
    fn submit_hostile(
        &mut self,
        cluster: &mut Cluster,
        program: usize,
        command: &Command,
        random: &mut Random,
    ) -> bool {
        let Command { form, import, instance, offset, length, signal, work } = *command;
        let at = self.programs[program].at;
        if form == Form::Store && length <= MOST_BYTES {
            if cluster.queued_commands(at) >= super::calls::MOST_QUEUED {
                return false;
            }
            let mut data = [0; SHORT_SIGNAL_BYTES];
            let data = &mut data[..length as usize];
            pattern(random.next(), 0, data);
            let command =
                CommandRepr::ShortSend { import, offset, length: length as u32, notify: random.chance(30), signal };
            self.hand_over(cluster, at, &command, data);
            return true;
        }
        let Some((completion, address)) = self.hold(cluster, program, length, 0) else { return false };
        let command = match form {
            Form::Store => {
                CommandRepr::LongSend { import, offset, address, length, notify: random.chance(30), signal, completion }
            }
            Form::Fetch => CommandRepr::Fetch { import, offset, address, length, completion },
            Form::Add => CommandRepr::Atomic {
                import,
                offset,
                address,
                atomic: Atomic { op: AtomicOp::Add, width: Width::Eight, operand: 1 },
                completion,
            },
        };
        let pending = Pending { work, import, instance, address, length };
        self.submit(cluster, program, completion, pending, &command);
        true
    }
}
