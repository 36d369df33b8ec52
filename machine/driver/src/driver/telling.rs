//! What the node tells, passed on to whom it concerns.

use std::collections::VecDeque;
use std::sync::Arc;

use mapwire_node::{Breach, Told};
use mapwire_wire::NodeId;

use crate::completions::{CommandFailure, CompletionWords};
use crate::exports::LocalExport;
use crate::log::{Line, Log};
use crate::notices::{Notice, Notification};

/// Notifications that wait before the page-fault handler leaves packets in their rings.
const NOTICES: usize = 256;

/// Notifications of one peer that may wait for the program. More are dropped and counted: a peer whose notifications come faster than
/// the program hears them takes no memory without end.
pub(super) const NOTICES_OF_A_PEER: u32 = 1 << 16;

/// What is changed when something is told.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(super) words: Arc<CompletionWords>,
    /// Handlers of the program that have not run yet.
    notices: VecDeque<Notice>,
    /// Of each peer, how many of them.
    waiting: Vec<u32>,
    /// Notifications that were dropped, since too many of their sender waited.
    pub(super) dropped_notices: u64,
    /// Stores that a peer refused after they had left.
    pub(super) refused_stores: u64,
    /// Peers that the node has found gone, and why.
    pub(super) gone: Vec<(NodeId, Gone)>,
}

/// Why a peer is gone, as the node has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gone {
    Broken(Breach),
    Left,
    Silent,
}

impl Teller {
    pub(super) fn new(words: Arc<CompletionWords>, nodes: usize) -> Self {
        Self {
            words,
            notices: VecDeque::with_capacity(NOTICES),
            waiting: vec![0; nodes],
            dropped_notices: 0,
            refused_stores: 0,
            gone: Vec::with_capacity(nodes),
        }
    }

    /// Whether one more notification might make the queue grow.
    pub(super) fn is_full(&self) -> bool {
        self.notices.len() >= NOTICES
    }

    /// Whether a notification waits for the program.
    #[inline]
    pub(super) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// The next notification for the program.
    #[inline]
    pub(crate) fn take_notice(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front()?;
        if let Some(waiting) = self.waiting.get_mut(usize::from(notice.notification.from.0)) {
            *waiting -= 1;
        }
        Some(notice)
    }

    /// Keeps a notification for the program, unless too many of its sender wait.
    fn keep_notice(&mut self, notice: Notice, log: &mut Log) {
        let from = notice.notification.from;
        let Some(waiting) = self.waiting.get_mut(usize::from(from.0)) else {
            return;
        };
        if *waiting < NOTICES_OF_A_PEER {
            *waiting += 1;
            self.notices.push_back(notice);
        } else {
            self.dropped_notices += 1;
            log.push(Line::NoticeDropped { from });
        }
    }

    /// Passes on what is told.
    #[inline]
    pub(super) fn tell(&mut self, told: Told, exports: &[LocalExport], log: &mut Log) {
        match told {
            Told::Done { completion, .. } => self.words.complete(completion),
            Told::Failed { completion: Some(completion), error, sent_bytes, .. } => {
                self.words.fail(completion, CommandFailure { error, sent_bytes })
            }
            told => self.tell_rare(told, exports, log),
        }
    }

    fn tell_rare(&mut self, told: Told, exports: &[LocalExport], log: &mut Log) {
        match told {
            Told::Done { .. } => {}
            Told::Failed { error, .. } => log.push(Line::CommandRefused(error)),
            Told::Notified { export, from, offset, length, .. } => {
                let handler = exports.iter().find(|local| local.id == export).and_then(|local| local.handler.clone());
                if let Some(handler) = handler {
                    let notification = Notification { from, export, offset, length };
                    let notice = Notice { handler, notification };
                    self.keep_notice(notice, log);
                }
            }
            Told::StoresRefused { from, export, reason, count } => {
                self.refused_stores = self.refused_stores.saturating_add(count);
                log.push(Line::StoreRefused { from, export, reason, count });
            }
            Told::Rejected { from, reason } => log.push(Line::Rejected { from, reason }),
            Told::NoticeWithoutKey { from, export } => {
                log.push(Line::NoticeWithoutKey { from, export });
            }
            Told::NoticeOutside { from, export, offset, length } => {
                log.push(Line::NoticeOutside { from, export, offset, length })
            }
            Told::PeerBroken { node, breach } => self.gone.push((node, Gone::Broken(breach))),
            Told::PeerLeft { node } => self.gone.push((node, Gone::Left)),
            Told::PeerSilent { node } => self.gone.push((node, Gone::Silent)),
            Told::PeerRestarted { node } => log.push(Line::PeerRestarted { node }),
            Told::PathChanged { node, path } => log.push(Line::PathChanged { node, path }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_wire::ExportId;

    fn notice(from: u16) -> Notice {
        let notification = Notification { from: NodeId(from), export: ExportId(1), offset: 0, length: 8 };
        Notice { handler: Arc::new(|_| {}), notification }
    }

    #[test]
    fn a_peer_whose_notifications_nobody_hears_loses_some_and_others_lose_none() {
        let mut teller = Teller::new(Arc::new(CompletionWords::new()), 2);
        let mut log = Log::new();
        for _ in 0..NOTICES_OF_A_PEER + 9 {
            teller.keep_notice(notice(0), &mut log);
        }
        assert_eq!(teller.dropped_notices, 9);
        assert!(matches!(log.pop(), Some(Line::NoticeDropped { from }) if from == NodeId(0)));
        teller.keep_notice(notice(1), &mut log);
        assert_eq!(teller.dropped_notices, 9);
        // Once the program has heard one there is room for the next.
        assert!(teller.take_notice().is_some());
        teller.keep_notice(notice(0), &mut log);
        assert_eq!(teller.dropped_notices, 9);
        let waiting = std::iter::from_fn(|| teller.take_notice());
        let of_other = waiting.filter(|it| it.notification.from == NodeId(1));
        assert_eq!(of_other.count(), 1);
        assert_eq!(teller.waiting, [0, 0]);
    }
}
