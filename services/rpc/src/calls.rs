//! Calls of this node that have not ended.

use alloc::collections::{BTreeMap, BTreeSet};

use mapwire_wire::NodeId;

use crate::outcome::{CallError, Outcome};

#[derive(Debug)]
struct Call {
    to: NodeId,
    deadline_ns: Option<u64>,
    /// What came of it, until somebody asks.
    outcome: Option<Outcome>,
}

#[derive(Debug, Default)]
pub(crate) struct Calls {
    last: u32,
    /// The last one begun: a caller that makes one call at a time needs no tree.
    newest: Option<(u32, Call)>,
    /// Those before it.
    by_xid: BTreeMap<u32, Call>,
    deadlines: BTreeSet<(u64, u32)>,
}

impl Calls {
    /// Begins with other numbers than a node that was here before.
    pub(crate) fn beginning_at(xid: u32) -> Self {
        Self { last: xid, ..Self::default() }
    }

    /// A number for a call that nobody waits for.
    pub(crate) fn next_xid(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.get(self.last).is_none() {
                return self.last;
            }
        }
    }

    pub(crate) fn begin(&mut self, to: NodeId, deadline_ns: Option<u64>) -> u32 {
        let xid = self.next_xid();
        if let Some(at) = deadline_ns {
            self.deadlines.insert((at, xid));
        }
        let call = Call { to, deadline_ns, outcome: None };
        if let Some((before, call)) = self.newest.replace((xid, call)) {
            self.by_xid.insert(before, call);
        }
        xid
    }

    pub(crate) fn len(&self) -> usize {
        self.by_xid.len() + usize::from(self.newest.is_some())
    }

    fn get(&self, xid: u32) -> Option<&Call> {
        match &self.newest {
            Some((of, call)) if *of == xid => Some(call),
            _ => self.by_xid.get(&xid),
        }
    }

    fn get_mut(&mut self, xid: u32) -> Option<&mut Call> {
        match &mut self.newest {
            Some((of, call)) if *of == xid => Some(call),
            _ => self.by_xid.get_mut(&xid),
        }
    }

    fn remove(&mut self, xid: u32) -> Option<Call> {
        match self.newest.take_if(|(of, _)| *of == xid) {
            Some((_, call)) => Some(call),
            None => self.by_xid.remove(&xid),
        }
    }

    /// Whether a call to `from` waits for its reply.
    pub(crate) fn awaits(&self, xid: u32, from: NodeId) -> bool {
        let call = self.get(xid);
        call.is_some_and(|call| call.to == from && call.outcome.is_none())
    }

    /// Ends a call that [waits](Self::awaits).
    pub(crate) fn end(&mut self, xid: u32, outcome: Outcome) {
        if let Some(call) = self.get_mut(xid) {
            let deadline_ns = call.deadline_ns.take();
            call.outcome = Some(outcome);
            if let Some(at) = deadline_ns {
                self.deadlines.remove(&(at, xid));
            }
        }
    }

    /// What came of a call, once; `None` while it waits, and when it is not known.
    pub(crate) fn take(&mut self, xid: u32) -> Option<(NodeId, Outcome)> {
        let outcome = self.get_mut(xid)?.outcome.take()?;
        let call = self.remove(xid)?;
        Some((call.to, outcome))
    }

    /// Forgets a call. What came of it, if something had.
    pub(crate) fn abandon(&mut self, xid: u32) -> Option<(NodeId, Outcome)> {
        let call = self.remove(xid)?;
        if let Some(at) = call.deadline_ns {
            self.deadlines.remove(&(at, xid));
        }
        call.outcome.map(|outcome| (call.to, outcome))
    }

    /// Ends all calls to a peer that wait. Results that have come stand.
    pub(crate) fn end_all(&mut self, to: NodeId, error: CallError) {
        let newest = self.newest.as_mut().map(|(xid, call)| (&*xid, call));
        for (xid, call) in self.by_xid.iter_mut().chain(newest) {
            if call.to == to {
                if let Some(at) = call.deadline_ns.take() {
                    self.deadlines.remove(&(at, *xid));
                }
                // What lies in memory of the connection goes with it.
                let is_safe = matches!(call.outcome, Some(Ok(crate::Body::Inline { .. }) | Err(_)));
                if !is_safe {
                    call.outcome = Some(Err(error));
                }
            }
        }
    }

    /// Ends the calls whose deadline is over.
    pub(crate) fn handle_time(&mut self, now_ns: u64) {
        while let Some(&(at, xid)) = self.deadlines.first()
            && at <= now_ns
        {
            self.end(xid, Err(CallError::TimedOut));
            self.deadlines.remove(&(at, xid));
        }
    }

    pub(crate) fn poll_at(&self) -> Option<u64> {
        self.deadlines.first().map(|&(at, _)| at)
    }
}
