//! How a run goes: calls, answers after a while, and then rest.

use mapwire_rpc::{Body, CallError, CallHeader, Credential, Draft, Outcome, Refusal, ReplyStatus, Rpc, Xid};
use mapwire_wire::NodeId;

use super::watched::Watched;
use super::{PROCESS, PROGRAM, Programs, RPC, RpcSeen, VERSION, Waiting, body_of, key, token_of};
use crate::checks::liveness;
use crate::cluster::{Cluster, Observer, Violation};
use crate::coverage::Coverage;

/// A call that finds no connection, or no window, is made so much later.
const AGAIN_NS: u64 = 40_000;
/// How often it tries: its server may be dead.
const TRIES: u32 = 500;
/// Events of a run at most, for each call.
pub(super) const EVENTS_A_CALL: u64 = 20_000;

/// A call of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) node: NodeId,
    pub(super) to: NodeId,
    pub(super) bytes: u64,
    pub(super) timeout_ns: u64,
    pub(super) is_one_way: bool,
    pub(super) tries: u32,
}

/// What an event of a program is.
const CALL: u32 = 0;
const ANSWER: u32 = 1;
const REPEAT: u32 = 2;
const KINDS: u32 = 3;

pub(super) const fn event_of_call(number: u32) -> u32 {
    number * KINDS + CALL
}

impl crate::run::Programs for Programs {
    type Seen = RpcSeen;

    fn violation(&self) -> Option<&(u64, Violation)> {
        self.violation.as_ref()
    }

    fn finish(self, coverage: &mut Coverage) -> RpcSeen {
        self.seen.cover(coverage);
        self.seen
    }

    fn event(&mut self, cluster: &mut Cluster, event: u32) -> bool {
        match event % KINDS {
            CALL => self.make(cluster, event),
            ANSWER => self.answer(cluster, event),
            _ => self.repeat(cluster, event),
        }
        false
    }

    fn follow_up(&mut self, cluster: &mut Cluster) {
        while let Some(node) = self.anew.pop() {
            if let Err(error) = self.put(cluster, node) {
                self.unexplained(cluster.now_ns(), error.to_string());
            }
        }
        for node in self.all() {
            while self.is_alive(node)
                && let Some((call, replies)) = self.call_if(cluster, node, Watched::has_news, Watched::take_news)
            {
                for (from, xid) in replies {
                    self.check_reply(cluster.now_ns(), (node, xid), from);
                }
                if let Some(call) = call {
                    self.take(cluster, node, call);
                }
            }
        }
        let over: Vec<_> = self.waiting.keys().copied().collect();
        for (node, xid) in over {
            let to = self.waiting[&(node, xid)].to;
            let is_over = |watched: &Watched| !watched.rpc.is_waiting(Xid(xid), to);
            let outcome = self.call_if(cluster, node, is_over, |watched| watched.rpc.take_outcome(Xid(xid)));
            if let Some(Some(outcome)) = outcome {
                self.hear(cluster, (node, xid), outcome);
            }
        }
    }

    fn rest(&mut self, cluster: &mut Cluster) {
        if let Some((&(node, _), call)) = self.waiting.iter().next() {
            let text = format!("call {} to {} never ends", call.token, call.to);
            let at = mapwire_wire::Endpoint::first_of(node);
            self.violated(cluster.now_ns(), liveness::still_waits(at, text));
        }
        for node in self.all() {
            let service: Option<&Watched> = cluster.node(node).service(PROCESS, RPC);
            let counters = service.map(|watched| *watched.rpc.counters()).unwrap_or_default();
            self.seen.late += counters.late_replies;
            self.seen.stray += counters.stray_records;
        }
    }
}

impl Programs {
    fn make(&mut self, cluster: &mut Cluster, event: u32) {
        let token = event / KINDS;
        let Some(call) = self.calls.get_mut(token as usize) else { return };
        if self.dead[usize::from(call.node.0)] {
            return;
        }
        call.tries += 1;
        let Call { node, to, bytes, timeout_ns, is_one_way, tries } = *call;
        let may_close = tries == 1 && self.close_percent > 0;
        if may_close && self.random.chance(self.close_percent) {
            self.closed += 1;
            self.call(cluster, node, |rpc, _| rpc.close(to));
        }
        let body = body_of(token, bytes);
        let sent = body.clone();
        let begun = self.call(cluster, node, |rpc, now_ns| begin(rpc, to, &sent, now_ns + timeout_ns, is_one_way));
        match begun {
            Some(Ok(None)) => {}
            Some(Ok(Some(xid))) => {
                let deadline_ns = cluster.clock_ns(node) + timeout_ns;
                let waiting = Waiting { token, to, deadline_ns, body };
                self.waiting.insert(key(node, xid), waiting);
                self.owed.insert(key(node, xid), (1, false));
                if self.random.chance(30) {
                    let after_ns = self.random.below(timeout_ns);
                    cluster.schedule(cluster.now_ns() + after_ns, token * KINDS + REPEAT);
                }
            }
            Some(Err(Refusal::NotOpen(_))) => {
                self.call(cluster, node, |rpc, _| {
                    let session = rpc.new_session();
                    rpc.connect(to, session, 0);
                });
                self.try_later(cluster, event, tries);
            }
            Some(Err(Refusal::NoWindow(_) | Refusal::TooMany(_))) | None => {
                self.try_later(cluster, event, tries);
            }
            Some(Err(other)) => self.unexplained(cluster.now_ns(), format!("call {token}: {other}")),
        }
    }

    fn try_later(&mut self, cluster: &mut Cluster, event: u32, tries: u32) {
        if tries < TRIES {
            let after_ns = 1 + self.random.below(AGAIN_NS * u64::from(tries));
            cluster.schedule(cluster.now_ns() + after_ns, event);
        }
    }

    /// A caller asks once more.
    fn repeat(&mut self, cluster: &mut Cluster, event: u32) {
        let token = event / KINDS;
        let waiting = self.waiting.iter();
        let found = waiting
            .filter(|(_, waiting)| waiting.token == token)
            .map(|(&(node, xid), waiting)| (node, Xid(xid), waiting.to, waiting.body.clone()))
            .next();
        let Some((node, xid, to, body)) = found else { return };
        let asked = self.call(cluster, node, |rpc, _| rpc.again(xid, to, &mut Some(draft(&body))));
        if asked == Some(Ok(())) {
            self.seen.repeated += 1;
            self.owed.entry(key(node, xid)).or_default().0 += 1;
        }
    }

    /// A server answers a call that it had in hand.
    fn answer(&mut self, cluster: &mut Cluster, event: u32) {
        let Some((node, call, body)) = self.held.remove(&event) else { return };
        let replied = self.call(cluster, node, |rpc, _| {
            let mut draft = Draft::reply(call.id.xid, ReplyStatus::Success, Vec::new());
            draft.body().extend_from_slice(&body);
            rpc.reply(&call.id, draft, None)
        });
        if let Some(Err(Refusal::NotAwaited(_))) = replied
            && !self.has_ended()
        {
            let text = format!("{node} may not answer call {:?}", call.id);
            self.unexplained(cluster.now_ns(), text);
        }
    }

    /// Calls a service if it looks as if that were of use.
    fn call_if<R>(
        &mut self,
        cluster: &mut Cluster,
        node: NodeId,
        look: impl Fn(&Watched) -> bool,
        call: impl FnOnce(&mut Watched) -> R,
    ) -> Option<R> {
        let service: Option<&Watched> = cluster.node(node).service(PROCESS, RPC);
        if !service.is_some_and(look) {
            return None;
        }
        let called = cluster.parts(node).0.call(PROCESS, RPC, call);
        cluster.settle(node, self);
        called
    }

    /// Connections may have ended: a node has crashed, or a program has ended its own.
    fn has_ended(&self) -> bool {
        self.seen.crashed + self.closed > 0
    }

    /// A server takes a call in hand, and carries it out.
    fn take(&mut self, cluster: &mut Cluster, node: NodeId, call: Box<mapwire_rpc::Incoming>) {
        let body = match &call.body {
            Body::Inline { record, at } => record[*at..].to_vec(),
            Body::Lent(lent) => {
                let text = format!("{lent:?} where no memory is lent");
                return self.unexplained(cluster.now_ns(), text);
            }
        };
        let Some(token) = token_of(&body) else {
            let text = format!("{node} got arguments that nobody sent");
            return self.unexplained(cluster.now_ns(), text);
        };
        let times = self.carried_out.entry(token).or_default();
        *times += 1;
        if *times > 1 {
            self.unexplained(cluster.now_ns(), format!("call {token} is carried out again"));
        }
        if call.id.is_one_way {
            self.seen.one_way += 1;
            return;
        }
        self.next_event += 1;
        let event = self.next_event * KINDS + ANSWER;
        self.held.insert(event, (node, call, body));
        // Most are answered at once; some when their callers have given up.
        let after_ns = match self.random.below(10) {
            0 => self.random.below(3_000_000),
            _ => self.random.below(3_000),
        };
        cluster.schedule(cluster.now_ns() + after_ns, event);
    }

    fn hear(&mut self, cluster: &mut Cluster, key: (NodeId, u32), outcome: Outcome) {
        let Some(call) = self.waiting.remove(&key) else { return };
        let (now_ns, token) = (cluster.now_ns(), call.token);
        let times = self.carried_out.get(&token).copied().unwrap_or(0);
        match outcome {
            Ok(Body::Inline { record, at }) if record[at..] == call.body && times == 1 => {
                self.seen.answered += 1;
            }
            Ok(body) => {
                self.unexplained(now_ns, format!("call {token}, carried out {times} times, ended with {body:?}"))
            }
            Err(CallError::TimedOut) if cluster.clock_ns(key.0) >= call.deadline_ns => {
                self.seen.timed_out += 1;
            }
            Err(CallError::Gone | CallError::Closed) if self.has_ended() => {
                self.seen.ended += 1;
            }
            // Its reply was out of the cache when it came again, and the answer to that came first; or its server has started anew.
            Err(CallError::SystemError) if self.seen.repeated > 0 && times == 1 => {
                self.seen.ended += 1;
            }
            Err(error) => self.unexplained(now_ns, format!("call {token} ended without cause: {error}")),
        }
    }
}

fn draft(body: &[u8]) -> Draft {
    let header = CallHeader { xid: 0, program: PROGRAM, version: VERSION, procedure: 1, credential: Credential::None };
    let mut draft = Draft::call(&header, Vec::new());
    draft.body().extend_from_slice(body);
    draft
}

fn begin(rpc: &mut Rpc, to: NodeId, body: &[u8], deadline_ns: u64, is_one_way: bool) -> Result<Option<Xid>, Refusal> {
    let mut draft = Some(draft(body));
    if is_one_way {
        rpc.one_way(to, &mut draft, None).map(|()| None)
    } else {
        rpc.begin(to, &mut draft, None, Some(deadline_ns)).map(Some)
    }
}
