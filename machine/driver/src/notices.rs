//! Notifications on their way to the handlers of the program: they run after delivery, outside the driver's lock, so that a
//! handler may itself send (VMMC §2).

use std::sync::Arc;

use mapwire_wire::{ExportId, NodeId};

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
    /// What.
    pub notification: Notification,
}

impl core::fmt::Debug for Notice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Notice").field("notification", &self.notification).finish_non_exhaustive()
    }
}
