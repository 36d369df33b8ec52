//! Imports of programs: asked for, entered, given back.

use mapwire_node::ImportError;
use mapwire_vmmc::{RequestId, VmmcError};
use mapwire_wire::{Key, NodeId, Refusal, Rights};

use super::{Callers, Held, Program};
use crate::canary::Canary;
use crate::checks::allowed::Allowed;
use crate::checks::bounds::{Instance, LANES, SLOTS};
use crate::checks::forgery::{Forged, Kind};
use crate::checks::importers::{self, Asked};
use crate::cluster::{Cluster, Observer};
use crate::coverage::Condition;
use crate::random::Random;

impl Callers {
    pub(super) fn import(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let at = self.programs[program].at;
        let lane = random.below(LANES as u64) as usize;
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
                self.broke(
                    cluster.now_ns(),
                    "completions",
                    format!("{}: an import could not be asked for: {error}", at.node),
                );
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

    /// An import has its outcome.
    pub(super) fn enter(&mut self, cluster: &mut Cluster, program: usize, request: RequestId) {
        let at = self.programs[program].at;
        let now_ns = cluster.now_ns();
        let Some(asked) = self.programs[program].asked.remove(&request) else {
            return self.broke(
                now_ns,
                "completions",
                format!("{}: import {} is over, and was not asked for", at.node, request.0),
            );
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
            self.broke(now_ns, "completions", format!("{}: import {} {wrong}", at.node, request.0));
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

    pub(super) fn release(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
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
    pub(super) fn give_back_dead(&mut self, cluster: &mut Cluster, program: usize) {
        for index in (0..self.programs[program].held.len()).rev() {
            if self.programs[program].held[index].is_dead {
                self.release_held(cluster, program, index);
            }
        }
    }
}
