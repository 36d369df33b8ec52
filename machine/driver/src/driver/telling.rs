//! Completions of the NIC, told to whom they concern.

use std::collections::VecDeque;
use std::sync::Arc;

use mapwire_nic::Completion;
use mapwire_translation::PageRange;

use crate::completions::{CommandFailure, CompletionWords};
use crate::exports::LocalExport;
use crate::log::{Line, Log};
use crate::notices::{Notice, Notification};
use crate::pages::Pages;

/// Notifications that wait before the page-fault handler leaves packets in their rings.
const NOTICES: usize = 256;

/// What is changed when a completion is told.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(super) words: Arc<CompletionWords>,
    /// Transfers whose pages are held, by completion word.
    pub(super) held: Vec<Option<PageRange>>,
    /// Handlers of the program that have not run yet.
    pub(crate) notices: VecDeque<Notice>,
    /// Stores that a peer refused after they had left.
    pub(super) refused_stores: u64,
}

impl Teller {
    pub(super) fn new(words: Arc<CompletionWords>) -> Self {
        Self {
            words,
            held: vec![None; crate::completions::WORDS],
            notices: VecDeque::with_capacity(NOTICES),
            refused_stores: 0,
        }
    }

    /// Whether one more notification might make the queue grow.
    pub(super) fn is_full(&self) -> bool {
        self.notices.len() >= NOTICES
    }

    /// Lets go of the pages of the transfer with completion word `word`.
    #[inline]
    pub(super) fn release(&mut self, pages: &mut Pages, word: u32) {
        if let Some(range) = self.held.get_mut(word as usize).and_then(Option::take) {
            pages.release(range);
        }
    }

    /// Tells a completion to whom it concerns.
    #[inline]
    pub(super) fn tell(
        &mut self,
        completion: Completion,
        pages: &mut Pages,
        exports: &[LocalExport],
        log: &mut Log,
    ) {
        match completion {
            Completion::Done { completion, .. } => {
                self.release(pages, completion);
                self.words.complete(completion);
            }
            Completion::Failed {
                completion: Some(completion),
                error,
                sent_bytes,
                ..
            } => {
                self.release(pages, completion);
                self.words
                    .fail(completion, CommandFailure { error, sent_bytes });
            }
            Completion::Failed {
                completion: None,
                error,
                ..
            } => log.push(Line::CommandRefused(error)),
            Completion::Notification {
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
            Completion::StoreRefused {
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
            Completion::Rejected { from, reason } => log.push(Line::Rejected { from, reason }),
            // These come with a packet, and are told where it is.
            Completion::Message { .. } => {}
        }
    }
}
