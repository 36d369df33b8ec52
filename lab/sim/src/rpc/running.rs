//! How a run goes: calls, answers after a while, and then rest.

use mapwire_rpc::{Body, CallError, CallHeader, Credential, Draft, Outcome, Refusal, ReplyStatus, Rpc, Standing, Xid};
use mapwire_wire::NodeId;

use super::{Call, PROCESS, PROGRAM, Programs, RPC, RpcSeen, VERSION, Waiting, body_of, key, token_of};
use crate::canary::Canary;
use crate::checks::liveness;
use crate::cluster::{Cluster, Observer, Violation};
use crate::coverage::Coverage;

/// A call that finds no connection, or no window, is made so much later.
const AGAIN_NS: u64 = 40_000;
/// How often it tries: its server may be dead.
pub(super) const TRIES: u32 = 500;
/// Events of a run at most, for each call.
pub(super) const EVENTS_A_CALL: u64 = 20_000;

/// What an event of a program is.
const CALL: u32 = 0;
const ANSWER: u32 = 1;
pub(super) const IMPORTED: u32 = 2;
pub(super) const KINDS: u32 = 3;

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
            _ => self.import(event / KINDS),
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
                && let Some(peer) = self.call_if(cluster, node, Rpc::has_news, Rpc::take_news)
            {
                if let Some(peer) = peer {
                    self.tend(cluster, node, peer);
                }
            }
            while self.is_alive(node)
                && let Some(call) = self.call_if(cluster, node, Rpc::has_calls, Rpc::next_call)
            {
                if let Some(call) = call {
                    self.take(cluster, node, call);
                }
            }
        }
        let over: Vec<_> = self.waiting.keys().copied().collect();
        for (node, xid) in over {
            let to = self.waiting[&(node, xid)].to;
            let is_over = |rpc: &Rpc| !rpc.is_waiting(Xid(xid), to);
            let outcome = self.call_if(cluster, node, is_over, |rpc| rpc.take_outcome(Xid(xid)));
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
            let service: Option<&Rpc> = cluster.node(node).service(PROCESS, RPC);
            let counters = service.map(|rpc| *rpc.counters()).unwrap_or_default();
            self.seen.late += counters.late_replies;
            self.seen.stray += counters.stray_records;
        }
        if self.seen.late > self.seen.timed_out {
            let text =
                format!("{} replies came to calls that had ended, and {} had", self.seen.late, self.seen.timed_out);
            self.unexplained(cluster.now_ns(), text);
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
        let Call { node, to, bytes, timeout_ns, is_one_way, tries, .. } = *call;
        let may_close = tries == 1 && self.close_percent > 0;
        if may_close && self.random.chance(self.close_percent) {
            self.closed += 1;
            self.ended_ns = cluster.now_ns();
            self.call(cluster, node, |rpc, _| rpc.close(to));
        }
        match self.connect(cluster, node, to) {
            Standing::Ready(_) => {}
            // A server that has started anew may call first.
            Standing::Gone => return self.try_later(cluster, event, tries),
            Standing::Absent | Standing::Begun => return self.connect_later(cluster, event),
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
            }
            Some(Err(Refusal::NotOpen(_) | Refusal::NoWindow(_) | Refusal::TooMany(_))) | None => {
                self.try_later(cluster, event, tries);
            }
            Some(Err(other)) => self.unexplained(cluster.now_ns(), format!("call {token}: {other}")),
        }
    }

    pub(super) fn try_later(&mut self, cluster: &mut Cluster, event: u32, tries: u32) {
        if tries < TRIES {
            let after_ns = 1 + self.random.below(AGAIN_NS * u64::from(tries));
            cluster.schedule(cluster.now_ns() + after_ns, event);
        }
    }

    /// A server answers a call that it had in hand.
    fn answer(&mut self, cluster: &mut Cluster, event: u32) {
        let Some((node, call, mut body)) = self.held.remove(&event) else { return };
        if self.canary == Some(Canary::OtherReply)
            && let Some((.., other)) = self.held.values().next()
        {
            body.clone_from(other);
        }
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
        look: impl Fn(&Rpc) -> bool,
        call: impl FnOnce(&mut Rpc) -> R,
    ) -> Option<R> {
        let service: Option<&Rpc> = cluster.node(node).service(PROCESS, RPC);
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
