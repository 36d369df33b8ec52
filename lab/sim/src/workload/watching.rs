//! What the programs see of the cluster, and what is checked as it happens.

use mapwire_nic::{CommandError, Rejection};
use mapwire_node::{Act, Ask, Told};
use mapwire_wire::{Endpoint, ExportId, NodeId, Refusal};

use super::{Callers, Todo, may_fail};
use crate::checks::bounds::{LANE_DATA, LANES, LANES_OFFSET, Spot, WORD_OFFSET};
use crate::checks::completions::{Pending, Work};
use crate::checks::delivery::Arrived;
use crate::checks::forgery::{Forged, Kind, Misused};
use crate::checks::violation;
use crate::cluster::{Moved, Observer, Violation, breach_of};
use crate::coverage::Condition;

impl Callers {
    /// Bytes were stored in an export.
    fn stored(&mut self, number: usize, offset: u64, moved: &Moved<'_>) -> Result<(), Violation> {
        let wrong = |text| Err(violation("bounds", text));
        let exporter = self.instances[number].exporter;
        let start = self.instances[number].address;
        let landing = self.instances[number].landing;
        if let Some((address, atomic)) = moved.update {
            let Some(address) = address else { return wrong("a word that is not pinned was updated".into()) };
            if address != start + WORD_OFFSET {
                return wrong(format!("{atomic:?} changed {address:#x}, which is not a word"));
            }
            self.instances[number].adds.applied += 1;
            return Ok(());
        }
        let lane_bytes = self.config.lane_bytes;
        let Some(from_lanes) = offset.checked_sub(LANES_OFFSET) else {
            return wrong(format!("offset {offset}, which nobody may store to, was stored to"));
        };
        // The first lane is the last of the export.
        let lane = LANES.saturating_sub(1 + (from_lanes / lane_bytes) as usize);
        let owner = self.lane_owner(self.index(exporter), lane);
        let sender = self.programs[owner].at;
        if sender.node != moved.from || from_lanes % lane_bytes < LANE_DATA {
            return wrong(format!("{} stored at offset {offset}, which is not its own", moved.from));
        }
        let signal = match moved.signal {
            None => None,
            Some((address, value, op)) => {
                let of = |start: u64| address.and_then(|address| address.checked_sub(start));
                let length = self.instances[number].length;
                let within = of(start).filter(|offset| *offset < length);
                let Some(at) = within.or_else(|| landing.and_then(of)) else {
                    return wrong(format!("a signal was written to {address:x?}"));
                };
                Some((at, value, op))
            }
        };
        let Some(stream) = self.streams.get_mut(&(owner, exporter.node)) else {
            return wrong("bytes arrived, and nothing was ever sent".into());
        };
        let instances = &self.instances;
        let may_lose = self.config.resends;
        let lacks_pages = self.config.may_lack_pages;
        let arrived = Arrived { instance: number, offset, bytes: moved.bytes, signal };
        let whole = stream.arrive(arrived, may_lose, |sent| may_fail(instances, lacks_pages, sent))?;
        if landing.is_some_and(|landing| moved.address >= Some(landing)) {
            self.coverage.note(Condition::Landed);
        }
        if let Some(sent) = &whole {
            self.coverage.note(Condition::Delivered);
            let has_signal = u64::from(sent.signal.is_some());
            self.coverage.note_many(Condition::Signalled, has_signal);
        }
        if let Some(sent) = whole.filter(|sent| sent.notify) {
            let id = self.instances[number].id;
            let mut due = self.notifications.iter();
            if due.any(|due| due.0 == exporter) {
                self.coverage.note(Condition::NotifiedDeep);
            }
            self.notifications.push((exporter, id, moved.from, sent.offset, sent.length));
        }
        Ok(())
    }

    /// Bytes came back to the buffer of a command.
    fn fetched(&mut self, word: u32, address: u64, moved: &Moved<'_>) -> Result<(), Violation> {
        let at = self.index(moved.at);
        let length = moved.bytes.len() as u64;
        let wrong = |text: &str| {
            let text = format!("{}: {length} bytes were stored in buffer {word}, {text}", moved.at.node);
            Err(violation("bounds", text))
        };
        let Some(pending) = self.programs[at].words.get_mut(word) else {
            return wrong("of which no command is under way");
        };
        match &mut pending.work {
            Work::Fetch { received, length: due, .. } => {
                if address != pending.address + *received || *received + length > *due {
                    return wrong("not where they are due");
                }
                *received += length;
                Ok(())
            }
            Work::Add if address == pending.address && length == 8 => Ok(()),
            _ => wrong("by no fetch"),
        }
    }

    fn moved_now(&mut self, moved: &Moved<'_>) -> Result<(), Violation> {
        let target = match moved.update {
            Some((address, _)) => address,
            None => moved.address,
        };
        let Some(address) = target else {
            // The garbage frame: harmless, but nothing that a correct node uses for pages that are pinned.
            return if self.config.may_lack_pages || moved.bytes.is_empty() {
                Ok(())
            } else {
                Err(violation("bounds", "bytes went to the garbage frame".into()))
            };
        };
        match self.spot(moved.at, address, moved.bytes.len() as u64)? {
            Spot::Export(number, offset) => self.stored(number, offset, moved),
            Spot::Buffer(word, _) => self.fetched(word, address, moved),
        }
    }

    /// A command failed: is there a reason?
    fn check_failure(&mut self, at: Endpoint, instance: Option<usize>, error: &CommandError) -> Result<(), Violation> {
        let is_gone = |node: NodeId| self.crashed[usize::from(node.0)];
        let is_over = instance.is_none_or(|number| {
            let instance = &self.instances[number];
            !instance.stands
        });
        let is_due = match error {
            CommandError::PeerGone(node) => is_gone(*node),
            CommandError::Revoked(_) | CommandError::Refused(Refusal::Revoked) => is_over,
            CommandError::Refused(Refusal::Busy) | CommandError::NotPinned { .. } | CommandError::NoRoom { .. } => {
                self.config.may_lack_pages
            }
            _ => false,
        };
        match is_due {
            true => {
                self.coverage.note(match error {
                    CommandError::PeerGone(_) => Condition::FailedGone,
                    CommandError::Revoked(_) | CommandError::Refused(Refusal::Revoked) => Condition::FailedRevoked,
                    _ => Condition::FailedPages,
                });
                Ok(())
            }
            false => {
                let text = format!("{}, {}: a command failed without reason: {error}", at.node, at.process);
                Err(violation("completions", text))
            }
        }
    }

    /// Whether a hostile command failed as it must; any other may have failed for other reasons.
    fn is_hostile(&mut self, pending: &Pending, error: &CommandError) -> bool {
        match (pending.work, error) {
            (Work::Misused(misuse), error) if misuse.is_due(error) => {
                self.coverage.note(Condition::Misused);
                true
            }
            (Work::Forged { kind, target }, CommandError::Refused(reason)) => {
                let stands = self.instances[target].stands;
                kind.is_due(*reason, stands)
            }
            _ => false,
        }
    }

    /// Finds the forged packet of `from` that `to` has refused, if it was one, and gives what that shows.
    fn take_refused(&mut self, (from, to): (NodeId, NodeId), reason: Refusal) -> Option<Condition> {
        let instances = &self.instances;
        let find = |is_exact: bool| {
            let is_it = |forged: &Forged| {
                let stands = instances[forged.target].stands;
                let is_due =
                    if is_exact { forged.kind.is_exactly_due(reason) } else { forged.kind.is_due(reason, stands) };
                !forged.is_refused && (forged.from, forged.to) == (from, to) && is_due
            };
            // One that can be refused for nothing else comes first: the others may be refused for another reason yet.
            let found = self.forged.iter().enumerate().filter(|(_, forged)| is_it(forged));
            found.min_by_key(|(_, forged)| forged.kind.reasons().len())
        };
        let (number, _) = find(true).or_else(|| find(false))?;
        let forged = &mut self.forged[number];
        forged.is_refused = true;
        Some(forged.kind.condition())
    }

    /// Finds the forged answer of `from` that `to` has refused, if it was one.
    fn take_reply(&mut self, (from, to): (NodeId, NodeId)) -> bool {
        let mut forged = self.forged.iter_mut();
        let found = forged
            .find(|forged| (forged.from, forged.to, forged.kind) == (from, to, Kind::Reply) && !forged.is_refused);
        let Some(found) = found else { return false };
        found.is_refused = true;
        *self.refusals.entry((from, to)).or_default() += 1;
        self.coverage.note(Condition::ForgedReply);
        true
    }

    /// Whether a refusal of what `from` has sent to `to` is due since that was forged.
    fn was_forged(&self, (from, to): (NodeId, NodeId), reason: Refusal, is_it: impl Fn(&Forged) -> bool) -> bool {
        let mut forged = self.forged.iter();
        forged.any(|forged| {
            let stands = self.instances[forged.target].stands;
            (forged.from, forged.to) == (from, to) && is_it(forged) && forged.kind.is_due(reason, stands)
        })
    }

    fn told_now(&mut self, at: NodeId, told: &Told) -> Result<(), Violation> {
        match *told {
            Told::Done { process, completion } => {
                let of = Endpoint { node: at, process };
                let index = self.index(of);
                let pending = self.programs[index].words.over(of, completion)?;
                self.todo.push(Todo::Over(index, pending, true));
                Ok(())
            }
            Told::Failed { process, completion, ref error, .. } => {
                let of = Endpoint { node: at, process };
                let index = self.index(of);
                let mut instance = None;
                if let Some(word) = completion {
                    let pending = self.programs[index].words.over(of, word)?;
                    instance = Some(pending.instance);
                    self.todo.push(Todo::Over(index, pending, false));
                    if self.is_hostile(&pending, error) {
                        return Ok(());
                    }
                } else {
                    let is_it = |misused: &Misused| misused.by == of && misused.what.is_due(error);
                    if let Some(found) = self.misused.iter().position(is_it) {
                        self.misused.remove(found);
                        self.coverage.note(Condition::Misused);
                        return Ok(());
                    }
                    // It may be one of these that has failed for another reason.
                    let is_it = |misused: &Misused| misused.by == of && *error == CommandError::Revoked(misused.import);
                    if let Some(found) = self.misused.iter().position(is_it) {
                        self.misused.remove(found);
                    }
                }
                self.check_failure(of, instance, error)
            }
            Told::Notified { process, export, from, offset, length } => {
                let of = Endpoint { node: at, process };
                let told = (of, export, from, offset, length);
                let due = self.notifications.iter();
                // Those of an export that is gone may be missing.
                let is_first = |due: &(Endpoint, ExportId, NodeId, u64, u64)| {
                    let id = self.by_id.get(&(at, due.1));
                    *due == told || (due.0 == of && id.is_some_and(|id| self.instances[*id].stands))
                };
                let first = due.clone().position(is_first);
                match first.filter(|first| self.notifications[*first] == told) {
                    Some(index) => {
                        self.notifications.remove(index);
                        self.coverage.note(Condition::Notified);
                        Ok(())
                    }
                    None => {
                        let due = first.map(|first| self.notifications[first]);
                        let text = format!(
                            "{at}: a notification of {from} that is not due: offset {offset}, {length} bytes; due is {due:?}"
                        );
                        Err(violation("delivery", text))
                    }
                }
            }
            Told::StoresRefused { from, export, reason, .. } => {
                self.coverage.note(Condition::StoreRefused);
                if self.was_forged((at, from), reason, |forged| self.instances[forged.target].id == export) {
                    return Ok(());
                }
                let instance = self.by_id.get(&(from, export));
                // Of a former incarnation, perhaps, which gave its exports the same numbers.
                let may_be_old = self.crashed[usize::from(from.0)];
                match instance.is_some_and(|number| self.instances[*number].stands)
                    && !may_be_old
                    && !self.config.may_lack_pages
                {
                    false => Ok(()),
                    true => {
                        Err(violation("delivery", format!("{at}: {from} refused stores to {export}, which stands")))
                    }
                }
            }
            Told::Rejected { from, reason: Rejection::Refused(reason) } => {
                *self.refusals.entry((from, at)).or_default() += 1;
                if let Some(condition) = self.take_refused((from, at), reason) {
                    self.coverage.note(condition);
                    return Ok(());
                }
                // Another refusal may have been taken for this one's, since the export that it names has changed.
                let was_mixed_up = self.was_forged((from, at), reason, |forged| !self.instances[forged.target].stands);
                let is_due = was_mixed_up
                    || matches!(reason, Refusal::Revoked | Refusal::UnknownExport)
                    || (reason == Refusal::Busy && self.config.may_lack_pages);
                if is_due {
                    Ok(())
                } else {
                    Err(violation("delivery", format!("{at}: a packet of {from} was refused: {reason}")))
                }
            }
            Told::Rejected { from, reason: Rejection::UnknownFetch(_) }
                if self.take_reply((from, at)) || self.config.resends =>
            {
                Ok(())
            }
            Told::Rejected { from, reason } => {
                Err(violation("delivery", format!("{at}: a packet of {from} was rejected: {reason:?}")))
            }
            Told::PeerSilent { node } if self.crashed[usize::from(node.0)] => Ok(()),
            Told::PeerRestarted { node } => {
                self.restarts.tell(at, node)?;
                for ((sender, to), stream) in &mut self.streams {
                    if *to == at && self.programs[*sender].at.node == node && stream.restart() {
                        self.coverage.note(Condition::RestartedUnderWay);
                    }
                }
                Ok(())
            }
            Told::PathChanged { .. } => Ok(()),
            _ => match breach_of(told) {
                Some((node, breach)) => {
                    Err(violation("delivery", format!("{at}: {node} is held to be broken: {breach}")))
                }
                None => Err(violation("delivery", format!("{at}: {told:?}"))),
            },
        }
    }
}

impl Observer for Callers {
    fn moved(&mut self, now_ns: u64, moved: Moved<'_>) {
        let outcome = self.moved_now(&moved);
        self.note(now_ns, outcome);
    }

    fn told(&mut self, now_ns: u64, at: NodeId, told: &Told) {
        let outcome = self.told_now(at, told);
        self.note(now_ns, outcome);
    }

    fn asked(&mut self, _now_ns: u64, at: NodeId, ask: &Ask) {
        let of = Endpoint { node: at, process: ask.process };
        let program = self.index(of);
        match ask.act {
            Act::ImportOver { request } => self.todo.push(Todo::Enter(program, request)),
            Act::Revoked { from, export } => {
                self.coverage.note(Condition::RevokeTold);
                for held in &mut self.programs[program].held {
                    held.is_dead |= held.grant.from == from && held.grant.export == export;
                }
            }
            _ => {}
        }
    }

    fn unpinned(&mut self, now_ns: u64, at: Endpoint, page: u64) {
        self.check_unpinned(now_ns, at, page);
    }

    fn crashed(&mut self, now_ns: u64, node: NodeId) {
        self.crashed[usize::from(node.0)] = true;
        self.down[usize::from(node.0)] = true;
        self.forget(now_ns, node);
    }

    fn restarted(&mut self, _now_ns: u64, node: NodeId) {
        self.down[usize::from(node.0)] = false;
        self.incarnations[usize::from(node.0)] += 1;
        self.restarts.happen(node);
    }

    fn violated(&mut self, now_ns: u64, violation: Violation) {
        self.violation.get_or_insert((now_ns, violation));
    }
}
