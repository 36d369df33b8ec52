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
use mapwire_wire::{ExportId, NodeId, Refusal};

use crate::breach::Breach;
use crate::error::DriverError;
use crate::rma::RegisterError;

/// Lines that are kept; those beyond are counted.
const LINES: usize = 64;

#[derive(Debug)]
pub(crate) enum Line {
    PeerBroken {
        node: NodeId,
        breach: Breach,
    },
    PeerRestarted {
        node: NodeId,
    },
    PathChanged {
        node: NodeId,
        path: u8,
    },
    ChannelUnusable {
        peer: NodeId,
        error: ChannelError,
    },
    BadCard {
        peer: NodeId,
        error: CardError,
    },
    Stuck {
        from: NodeId,
    },
    NotConnected {
        to: NodeId,
        error: RendezvousError,
    },
    NotPassed {
        to: NodeId,
        export: ExportId,
        error: DriverError,
    },
    NotRegistered {
        export: ExportId,
        error: RegisterError,
    },
    PassLost {
        to: NodeId,
        tag: u64,
    },
    CommandRefused(CommandError),
    StoreRefused {
        from: NodeId,
        export: ExportId,
        reason: Refusal,
        count: u64,
    },
    Rejected {
        from: NodeId,
        reason: Rejection,
    },
    NoticeWithoutKey {
        from: NodeId,
        export: ExportId,
    },
    NoticeOutside {
        from: NodeId,
        export: ExportId,
        offset: u64,
        length: u64,
    },
    NoticeDropped {
        from: NodeId,
    },
    LauncherGone(RendezvousError),
    TraceEnded(std::io::Error),
    NotServed(String),
    /// More happened than could be kept.
    Lost(u64),
    /// A peer did so more often than is said.
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
            Self::Rejected { reason: Rejection::UnknownHandler(_), .. } => return None,
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
            Self::PeerBroken { node, breach } => {
                tracing::error!(%node, %breach, "a peer is broken");
            }
            Self::PeerRestarted { node } => tracing::warn!(%node, "a peer has restarted"),
            Self::PathChanged { node, path } => {
                tracing::warn!(%node, path, "the path to a peer was left for another");
            }
            Self::ChannelUnusable { peer, error } => {
                tracing::error!(%peer, %error, "the channel to a peer is unusable");
            }
            Self::NotConnected { to, error } => {
                tracing::error!(%to, %error, "no channel to the peer could be asked for");
            }
            Self::NotPassed { to, export, error } => {
                tracing::error!(%to, %export, %error, "memory could not be passed to an importer");
            }
            Self::NotRegistered { export, error } => {
                tracing::warn!(%export, %error, "an export goes by packets: libfabric does not reach its memory");
            }
            Self::BadCard { peer, error } => {
                tracing::error!(%peer, %error, "a peer cannot be reached");
            }
            Self::Stuck { from } => {
                tracing::error!(%from, "a packet of a peer needs pages that do not stay pinned; the peer is given up");
            }
            Self::PassLost { to, tag } => {
                tracing::warn!(%to, tag, "memory did not reach an importer: it is gone, or takes none of the many descriptors that wait for it");
            }
            Self::NotServed(error) => {
                tracing::error!(%error, "pages that a transfer needs cannot be pinned");
            }
            Self::TraceEnded(error) => {
                tracing::error!(%error, "the trace of this rank cannot be written on, and ends here");
            }
            Self::CommandRefused(error) => tracing::warn!(%error, "a command was refused"),
            Self::StoreRefused { from, export, reason, count } => {
                tracing::warn!(%from, %export, %reason, count, "a peer refused stores")
            }
            // Peers begin before a service is here, and end after it.
            Self::Rejected { from, reason: Rejection::UnknownHandler(handler) } => {
                tracing::debug!(%from, %handler, "a message came for a service that is not here");
            }
            Self::Rejected { from, reason } => {
                tracing::warn!(%from, ?reason, "a packet was rejected");
            }
            Self::NoticeWithoutKey { from, export } => {
                tracing::warn!(%from, %export, "a notification without the export's key was dropped");
            }
            Self::NoticeOutside { from, export, offset, length } => {
                tracing::warn!(%from, %export, offset, length, "a notification for a range outside the export was dropped");
            }
            Self::NoticeDropped { from } => {
                tracing::warn!(%from, "a notification was dropped: too many of its sender wait for the handlers of the program");
            }
            Self::LauncherGone(error) => {
                tracing::debug!(%error, "the launcher had gone before this rank left");
            }
            Self::LeftOut(left_out) => tracing::warn!("{left_out}"),
            Self::Lost(lines) => tracing::warn!(lines, "more happened than could be logged"),
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
