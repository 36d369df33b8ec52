//! Notifications on their way to the handlers of the program: they run after delivery, outside the driver's lock, so that a
//! handler may itself send (VMMC §2).

use std::collections::VecDeque;
use std::sync::Arc;

use mapwire_wire::{ExportId, NodeId};

/// Notifications that wait before the page-fault handler leaves packets in their rings.
const NOTICES: usize = 256;

/// Notifications of one peer that may wait for the program. More are dropped and counted: a peer whose notifications come faster than
/// the program hears them takes no memory without end.
const NOTICES_OF_A_PEER: u32 = 1 << 16;

/// What a handler is told: a message has been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The sender.
    pub from: NodeId,
    /// Where it was delivered to.
    pub export: ExportId,
    /// First byte of the message, counted from the start of the export.
    pub offset: u64,
    /// Bytes of the message.
    pub length: u64,
}

/// A handler of the program.
pub type NotificationHandler = Arc<dyn Fn(Notification) + Send + Sync>;

/// A notification and the handler that it is for.
pub struct Notice {
    /// Who is told.
    pub handler: NotificationHandler,
    pub notification: Notification,
}

impl core::fmt::Debug for Notice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Notice").field("notification", &self.notification).finish_non_exhaustive()
    }
}

/// Notifications that wait for the program, and the handlers of its exports.
pub(crate) struct Notices {
    handlers: Vec<(ExportId, NotificationHandler)>,
    waiting: VecDeque<Notice>,
    /// How many wait, by sender.
    of_peers: Vec<u32>,
    dropped: u64,
}

impl core::fmt::Debug for Notices {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Notices").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Notices {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { handlers: Vec::new(), waiting: VecDeque::with_capacity(NOTICES), of_peers: vec![0; nodes], dropped: 0 }
    }

    /// Sets who is told of messages to an export; `None`: nobody.
    pub(crate) fn set_handler(&mut self, export: ExportId, handler: Option<NotificationHandler>) {
        self.handlers.retain(|(of, _)| *of != export);
        self.handlers.extend(handler.map(|handler| (export, handler)));
    }

    /// Keeps a notification for its handler, if there is one. False when too many of its sender wait, and it is dropped.
    pub(crate) fn push(&mut self, notification: Notification) -> bool {
        let handler = self.handlers.iter().find(|(export, _)| *export == notification.export);
        let of_peer = self.of_peers.get_mut(usize::from(notification.from.0));
        let (Some((_, handler)), Some(of_peer)) = (handler, of_peer) else {
            return true;
        };
        let has_room = *of_peer < NOTICES_OF_A_PEER;
        if has_room {
            *of_peer += 1;
            self.waiting.push_back(Notice { handler: Arc::clone(handler), notification });
        } else {
            self.dropped += 1;
        }
        has_room
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Notice> {
        let notice = self.waiting.pop_front()?;
        if let Some(of_peer) = self.of_peers.get_mut(usize::from(notice.notification.from.0)) {
            *of_peer -= 1;
        }
        Some(notice)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether one more might make the queue grow.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= NOTICES
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(from: u16) -> Notification {
        Notification { from: NodeId(from), export: ExportId(1), offset: 0, length: 8 }
    }

    #[test]
    fn a_peer_whose_notifications_nobody_hears_loses_some_and_others_lose_none() {
        let mut notices = Notices::new(2);
        assert!(notices.push(notice(0)) && notices.is_empty(), "the export has no handler");
        notices.set_handler(ExportId(1), Some(Arc::new(|_| {})));
        for number in 0..NOTICES_OF_A_PEER + 9 {
            assert_eq!(notices.push(notice(0)), number < NOTICES_OF_A_PEER);
        }
        assert_eq!(notices.dropped(), 9);
        assert!(notices.push(notice(1)));
        // Once the program has heard one there is room for the next.
        assert!(notices.pop().is_some());
        assert!(notices.push(notice(0)));
        let waiting = std::iter::from_fn(|| notices.pop());
        let of_other = waiting.filter(|it| it.notification.from == NodeId(1));
        assert_eq!(of_other.count(), 1);
        assert_eq!(notices.of_peers, [0, 0]);
        assert_eq!(notices.dropped(), 9);
    }
}
