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

/// What is changed when something is told.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(super) words: Arc<CompletionWords>,
    /// Handlers of the program that have not run yet.
    pub(crate) notices: VecDeque<Notice>,
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
            refused_stores: 0,
            gone: Vec::with_capacity(nodes),
        }
    }

    /// Whether one more notification might make the queue grow.
    pub(super) fn is_full(&self) -> bool {
        self.notices.len() >= NOTICES
    }

    /// Passes on what is told.
    #[inline]
    pub(super) fn tell(&mut self, told: Told, exports: &[LocalExport], log: &mut Log) {
        match told {
            Told::Done { completion, .. } => self.words.complete(completion),
            Told::Failed {
                completion: Some(completion),
                error,
                sent_bytes,
                ..
            } => self
                .words
                .fail(completion, CommandFailure { error, sent_bytes }),
            told => self.tell_rare(told, exports, log),
        }
    }

    fn tell_rare(&mut self, told: Told, exports: &[LocalExport], log: &mut Log) {
        match told {
            Told::Done { .. } => {}
            Told::Failed { error, .. } => log.push(Line::CommandRefused(error)),
            Told::Notified {
                export,
                from,
                offset,
                length,
                ..
            } => {
                let handler = exports
                    .iter()
                    .find(|local| local.id == export)
                    .and_then(|local| local.handler.clone());
                if let Some(handler) = handler {
                    let notification = Notification {
                        from,
                        export,
                        offset,
                        length,
                    };
                    self.notices.push_back(Notice {
                        handler,
                        notification,
                    });
                }
            }
            Told::StoresRefused {
                from,
                export,
                reason,
                count,
            } => {
                self.refused_stores = self.refused_stores.saturating_add(count);
                log.push(Line::StoreRefused {
                    from,
                    export,
                    reason,
                    count,
                });
            }
            Told::Rejected { from, reason } => log.push(Line::Rejected { from, reason }),
            Told::NoticeWithoutKey { from, export } => {
                log.push(Line::NoticeWithoutKey { from, export });
            }
            Told::NoticeOutside {
                from,
                export,
                offset,
                length,
            } => log.push(Line::NoticeOutside {
                from,
                export,
                offset,
                length,
            }),
            Told::PeerBroken { node, breach } => self.gone.push((node, Gone::Broken(breach))),
            Told::PeerLeft { node } => self.gone.push((node, Gone::Left)),
            Told::PeerSilent { node } => self.gone.push((node, Gone::Silent)),
            Told::PeerRestarted { node } => log.push(Line::PeerRestarted { node }),
            Told::PathChanged { node, path } => log.push(Line::PathChanged { node, path }),
        }
    }
}
