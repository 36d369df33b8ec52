//! Lines for the program's log, kept until a thread may write them: a subscriber may allocate and take locks, which code in
//! the page-fault handler must not, and may touch shared memory, which code that holds the driver must not.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use mapwire_host::log_limit::{LeftOut, LogLimit};
use mapwire_nic::{CommandError, Rejection};
use mapwire_transport::net::CardError;
use mapwire_transport::rendezvous::RendezvousError;
use mapwire_transport::shm::channel::ChannelError;
use mapwire_wire::{ExportId, HandlerId, NodeId, Refusal};
use thiserror::Error;

use crate::breach::Breach;
use crate::error::DriverError;
use crate::rma::RegisterError;

/// Lines that are kept; those beyond are counted.
const LINES: usize = 64;

/// A line, as the log has it: what happened, then values by name.
#[derive(Debug, Error)]
pub(crate) enum Line {
    #[error("a peer is broken node={node} breach={breach}")]
    PeerBroken { node: NodeId, breach: Breach },
    #[error("a peer has restarted node={node}")]
    PeerRestarted { node: NodeId },
    #[error("the path to a peer was left for another node={node} path={path}")]
    PathChanged { node: NodeId, path: u8 },
    #[error("the channel to a peer is unusable peer={peer} error={error}")]
    ChannelUnusable { peer: NodeId, error: ChannelError },
    #[error("a peer cannot be reached peer={peer} error={error}")]
    BadCard { peer: NodeId, error: CardError },
    #[error("a packet of a peer needs pages that do not stay pinned; the peer is given up from={from}")]
    Stuck { from: NodeId },
    #[error("no channel to the peer could be asked for to={to} error={error}")]
    NotConnected { to: NodeId, error: RendezvousError },
    #[error("memory could not be passed to an importer to={to} export={export} error={error}")]
    NotPassed { to: NodeId, export: ExportId, error: DriverError },
    #[error("an export goes by packets: libfabric does not reach its memory export={export} error={error}")]
    NotRegistered { export: ExportId, error: RegisterError },
    #[error(
        "memory did not reach an importer: it is gone, or takes none of the many descriptors that wait for it to={to} tag={tag}"
    )]
    PassLost { to: NodeId, tag: u64 },
    #[error("a command was refused error={0}")]
    CommandRefused(CommandError),
    #[error("a peer refused stores from={from} export={export} reason={reason} count={count}")]
    StoreRefused { from: NodeId, export: ExportId, reason: Refusal, count: u64 },
    #[error("a packet was rejected from={from} reason={reason:?}")]
    Rejected { from: NodeId, reason: Rejection },
    /// Peers begin before a service is here, and end after it.
    #[error("a message came for a service that is not here from={from} handler={handler}")]
    NoService { from: NodeId, handler: HandlerId },
    #[error("a notification without the export's key was dropped from={from} export={export}")]
    NoticeWithoutKey { from: NodeId, export: ExportId },
    #[error(
        "a notification for a range outside the export was dropped from={from} export={export} offset={offset} length={length}"
    )]
    NoticeOutside { from: NodeId, export: ExportId, offset: u64, length: u64 },
    #[error("a notification was dropped: too many of its sender wait for the handlers of the program from={from}")]
    NoticeDropped { from: NodeId },
    #[error("the launcher had gone before this rank left error={0}")]
    LauncherGone(RendezvousError),
    #[error("the trace of this rank cannot be written on, and ends here error={0}")]
    TraceEnded(std::io::Error),
    #[error("pages that a transfer needs cannot be pinned error={0}")]
    NotServed(String),
    /// More happened than could be kept.
    #[error("more happened than could be logged lines={0}")]
    Lost(u64),
    /// A peer did so more often than is said.
    #[error("{0}")]
    LeftOut(LeftOut<Cause>),
}

/// What a peer can have said of itself without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    peer: NodeId,
    what: &'static str,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.what, self.peer)
    }
}

impl Line {
    /// What it is about, if a peer can cause it again and again.
    fn cause(&self) -> Option<Cause> {
        let (peer, what) = match self {
            Self::PeerRestarted { node } => (node, "restarts"),
            Self::PathChanged { node, .. } => (node, "paths that were left"),
            Self::NotPassed { to, .. } => (to, "memory that could not be passed, imports"),
            Self::PassLost { to, .. } => (to, "memory that did not arrive, imports"),
            Self::StoreRefused { from, .. } => (from, "refusals of stores"),
            Self::Rejected { from, .. } => (from, "packets that were rejected,"),
            Self::NoticeWithoutKey { from, .. } => (from, "notifications without a key,"),
            Self::NoticeOutside { from, .. } => (from, "notifications outside exports,"),
            Self::NoticeDropped { from } => (from, "notifications that were dropped,"),
            _ => return None,
        };
        Some(Cause { peer: *peer, what })
    }

    /// Writes the line. Not in the page-fault handler, and not with the driver held.
    #[cold]
    pub(crate) fn write(self) {
        match self {
            Self::PeerBroken { .. }
            | Self::ChannelUnusable { .. }
            | Self::BadCard { .. }
            | Self::Stuck { .. }
            | Self::NotConnected { .. }
            | Self::NotPassed { .. }
            | Self::TraceEnded(_)
            | Self::NotServed(_) => tracing::error!("{self}"),
            Self::NoService { .. } | Self::LauncherGone(_) => tracing::debug!("{self}"),
            _ => tracing::warn!("{self}"),
        }
    }
}

/// The lines that wait to be written. Allocates nothing once it is made.
#[derive(Debug)]
pub(crate) struct Log {
    lines: VecDeque<Line>,
    lost: u64,
    sparing: LogLimit<Cause>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { lines: VecDeque::with_capacity(LINES), lost: 0, sparing: LogLimit::default() }
    }

    /// Keeps a line, or counts it when there is no room, or when its cause has had its lines. How many those were is told by the next line
    /// after some time.
    #[cold]
    pub(crate) fn push(&mut self, line: Line) {
        self.push_at(line, Instant::now());
    }

    fn push_at(&mut self, line: Line, now: Instant) {
        let cause = line.cause();
        if cause.is_none_or(|cause| self.sparing.admit(cause, now)) {
            self.keep(line);
        }
        while let Some(left_out) = self.sparing.poll(now) {
            self.keep(Line::LeftOut(left_out));
        }
    }

    /// Nothing follows: what was counted is told.
    pub(crate) fn finish(&mut self) {
        let rest: Vec<_> = self.sparing.finish().collect();
        for left_out in rest {
            self.keep(Line::LeftOut(left_out));
        }
    }

    fn keep(&mut self, line: Line) {
        if self.lines.len() < LINES {
            self.lines.push_back(line);
        } else {
            self.lost += 1;
        }
    }

    /// The next line to write.
    pub(crate) fn pop(&mut self) -> Option<Line> {
        self.lines.pop_front().or_else(|| {
            let lost = core::mem::take(&mut self.lost);
            (lost > 0).then_some(Line::Lost(lost))
        })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.lost == 0
    }
}

#[cfg(test)]
mod tests {
    use mapwire_host::log_limit;

    use super::*;

    fn rejected(from: u16) -> Line {
        Line::Rejected { from: NodeId(from), reason: Rejection::Malformed }
    }

    #[test]
    fn a_peer_that_is_rejected_without_end_has_a_few_lines_and_a_count() {
        let mut log = Log::new();
        let begin = Instant::now();
        let pop = |log: &mut Log| -> Vec<Line> { core::iter::from_fn(|| log.pop()).collect() };
        for _ in 0..1000 {
            log.push_at(rejected(3), begin);
        }
        let lines = pop(&mut log).len();
        assert_eq!(lines, log_limit::MOST_LINES as usize);
        log.push_at(rejected(4), begin + log_limit::SPAN);
        let lines = pop(&mut log);
        assert!(matches!(lines[0], Line::Rejected { from: NodeId(4), .. }));
        let Line::LeftOut(left_out) = lines[1] else {
            panic!("{lines:?}");
        };
        let text = format!("packets that were rejected, of {}: 992 more", NodeId(3));
        assert!(left_out.to_string().starts_with(&text), "{left_out}");
        log.push_at(rejected(3), begin + log_limit::SPAN);
        assert!(log.is_empty());
        log.finish();
        assert_eq!(pop(&mut log).len(), 1);
    }

    #[test]
    fn a_full_log_keeps_the_first_lines_and_counts_the_others() {
        let mut log = Log::new();
        let capacity = log.lines.capacity();
        for from in 0..LINES as u16 + 3 {
            log.push(rejected(from));
        }
        assert_eq!(log.lines.capacity(), capacity);
        for due in 0..LINES as u16 {
            assert!(!log.is_empty());
            let line = log.pop();
            assert!(matches!(line, Some(Line::Rejected { from, .. }) if from.0 == due));
        }
        assert!(!log.is_empty());
        assert!(matches!(log.pop(), Some(Line::Lost(3))));
        assert!(log.is_empty());
        assert!(log.pop().is_none());
        log.push(rejected(7));
        assert!(matches!(log.pop(), Some(Line::Rejected { .. })));
        assert!(log.pop().is_none());
    }
}
