//! What is over, and who hears of it: completion words, notifications for handlers of the program, lines of its log, descriptors for
//! event loops, the bell of the host's thread, and the trace.

use std::sync::Arc;

use mapwire_host::waiting::now_ns;
use mapwire_nic::Rejection;
use mapwire_node::{Breach, NoPayload, Node, Told};
use mapwire_translation::AnyDesign;
use mapwire_wire::{ExportId, NodeId, TraceOp};

use crate::capture::Capture;
use crate::completions::{CommandFailure, CompletionWords};
use crate::events::Events;
use crate::host_bell::HostBell;
use crate::log::{Line, Log};
use crate::notices::{Notice, Notices, Notification, NotificationHandler};

/// Why a peer is gone, as the node has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gone {
    Broken(Breach),
    Left,
    Silent,
}

/// See [the module](self).
#[derive(Debug)]
pub(crate) struct Outcomes {
    words: Arc<CompletionWords>,
    notices: Notices,
    log: Log,
    /// Stores that a peer refused after they had left.
    refused_stores: u64,
    /// Peers that the node has found gone.
    gone: Vec<(NodeId, Gone)>,
    events: Vec<Arc<Events>>,
    /// Rung while messages wait for a thread of the host; without it whoever runs a turn takes them.
    host_bell: Option<Arc<HostBell>>,
    /// The bell has been rung since that thread took messages.
    has_rung_host: bool,
    capture: Option<Capture>,
}

impl Outcomes {
    pub(crate) fn new(words: Arc<CompletionWords>, nodes: usize, capture: Option<Capture>) -> Self {
        Self {
            words,
            notices: Notices::new(nodes),
            log: Log::new(),
            refused_stores: 0,
            gone: Vec::with_capacity(nodes),
            events: Vec::new(),
            host_bell: None,
            has_rung_host: false,
            capture,
        }
    }

    /// Passes on what the node tells.
    #[inline]
    pub(crate) fn tell(&mut self, told: Told) {
        match told {
            Told::Done { completion, .. } => self.words.complete(completion),
            Told::Failed { completion: Some(completion), error, sent_bytes, .. } => {
                self.words.fail(completion, CommandFailure { error, sent_bytes })
            }
            told => self.tell_rare(told),
        }
    }

    fn tell_rare(&mut self, told: Told) {
        let line = match told {
            Told::Done { .. } => return,
            Told::Notified { export, from, offset, length, .. } => {
                match self.notices.push(Notification { from, export, offset, length }) {
                    true => return,
                    false => Line::NoticeDropped { from },
                }
            }
            Told::PeerBroken { node, breach } => return self.gone.push((node, Gone::Broken(breach))),
            Told::PeerLeft { node } => return self.gone.push((node, Gone::Left)),
            Told::PeerSilent { node } => return self.gone.push((node, Gone::Silent)),
            Told::StoresRefused { from, export, reason, count } => {
                self.refused_stores = self.refused_stores.saturating_add(count);
                Line::StoreRefused { from, export, reason, count }
            }
            Told::Failed { error, .. } => Line::CommandRefused(error),
            Told::Rejected { from, reason: Rejection::UnknownHandler(handler) } => Line::NoService { from, handler },
            Told::Rejected { from, reason } => Line::Rejected { from, reason },
            Told::NoticeWithoutKey { from, export } => Line::NoticeWithoutKey { from, export },
            Told::NoticeOutside { from, export, offset, length } => {
                Line::NoticeOutside { from, export, offset, length }
            }
            Told::PeerRestarted { node } => Line::PeerRestarted { node },
            Told::PathChanged { node, path } => Line::PathChanged { node, path },
        };
        self.log.push(line);
    }

    /// Passes on what does not come with a packet. Whether there was anything.
    pub(crate) fn tell_all(&mut self, node: &mut Node<AnyDesign>) -> bool {
        let mut any = false;
        while let Some(told) = node.poll_told(&NoPayload, now_ns) {
            self.tell(told);
            any = true;
        }
        any
    }

    /// The next peer that the node has found gone.
    #[inline]
    pub(crate) fn take_gone(&mut self) -> Option<(NodeId, Gone)> {
        self.gone.pop()
    }

    /// Stores of this process that a peer refused after they had left.
    pub(crate) fn refused_stores(&self) -> u64 {
        self.refused_stores
    }

    /// Notifications that were dropped, since too many of their sender waited.
    pub(crate) fn dropped_notices(&self) -> u64 {
        self.notices.dropped()
    }

    /// Sets who is told of messages to an export.
    pub(crate) fn set_handler(&mut self, export: ExportId, handler: Option<NotificationHandler>) {
        self.notices.set_handler(export, handler);
    }

    /// The next notification for the program.
    #[inline]
    pub(crate) fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    /// Whether one more notification might take memory.
    pub(crate) fn is_full(&self) -> bool {
        self.notices.is_full()
    }

    /// Whether handlers of the program or lines of its log wait for a thread that may run and write them.
    #[inline]
    pub(crate) fn owes_program(&self) -> bool {
        !self.notices.is_empty() || !self.log.is_empty()
    }

    /// Keeps a line for the program's log.
    #[cold]
    pub(crate) fn log(&mut self, line: Line) {
        self.log.push(line);
    }

    /// The next line to write.
    pub(crate) fn take_line(&mut self) -> Option<Line> {
        self.log.pop()
    }

    pub(crate) fn finish_log(&mut self) {
        self.log.finish();
    }

    /// Adds a descriptor for an event loop.
    pub(crate) fn add_events(&mut self, events: Arc<Events>) {
        self.events.push(events);
    }

    pub(crate) fn remove_events(&mut self, events: &Arc<Events>) {
        self.events.retain(|other| !Arc::ptr_eq(other, events));
    }

    /// Ends all descriptors: this process has left.
    pub(crate) fn end_events(&mut self) {
        self.events.drain(..).for_each(|events| events.close());
    }

    /// Makes all armed descriptors readable. Whether there were any.
    pub(crate) fn fire_events(&self) -> bool {
        self.events.iter().fold(false, |any, events| events.fire() | any)
    }

    /// Sets who is told that messages wait for the host.
    pub(crate) fn set_host_bell(&mut self, bell: Option<Arc<HostBell>>) {
        self.host_bell = bell;
        self.has_rung_host = false;
    }

    /// Rings once for messages that wait for the host. False: there is no bell.
    pub(crate) fn ring_host(&mut self) -> bool {
        let Some(bell) = &self.host_bell else {
            return false;
        };
        if !core::mem::replace(&mut self.has_rung_host, true) {
            bell.ring();
        }
        true
    }

    /// The host's thread takes what waits: the next message rings again.
    pub(crate) fn answer_host(&mut self) {
        self.has_rung_host = false;
    }

    /// Whether what is communicated is written down.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.capture.is_some()
    }

    /// Has the trace note something. After an error the program goes on without its trace, and its log says so.
    #[cold]
    pub(crate) fn note(
        &mut self,
        node: &mut Node<AnyDesign>,
        note: impl FnOnce(&mut Capture, &mut Node<AnyDesign>) -> std::io::Result<()>,
    ) {
        if let Some(capture) = &mut self.capture
            && let Err(error) = note(capture, node)
        {
            self.capture = None;
            node.set_tracing(false);
            self.log.push(Line::TraceEnded(error));
        }
    }

    /// Notes an operation that the NIC takes no part in, or does not translate.
    #[cold]
    pub(crate) fn trace(&mut self, node: &mut Node<AnyDesign>, op: TraceOp, flags: u8, (address, bytes): (u64, u64)) {
        self.note(node, |capture, _| capture.record(now_ns(), op, flags, address, bytes));
    }

    /// Notes what the node has communicated since.
    #[inline]
    pub(crate) fn take_traced(&mut self, node: &mut Node<AnyDesign>) {
        if self.is_traced() {
            self.note(node, |capture, node| capture.take(|| node.poll_event()));
        }
    }

    /// Writes what the trace has in memory: before a sleep, and at the end.
    pub(crate) fn flush_trace(&mut self, node: &mut Node<AnyDesign>) {
        self.note(node, |capture, _| capture.flush_if_any());
    }

    /// Takes the trace, which ends.
    pub(crate) fn take_capture(&mut self) -> Option<Capture> {
        self.capture.take()
    }
}

#[cfg(test)]
mod tests {
    use mapwire_nic::CommandError;
    use mapwire_wire::ProcessId;

    use super::*;

    const PEER: NodeId = NodeId(1);

    fn outcomes() -> Outcomes {
        Outcomes::new(Arc::new(CompletionWords::new()), 2, None)
    }

    #[test]
    fn what_is_told_reaches_words_handlers_and_the_log_each_alone() {
        let mut outcomes = outcomes();
        let process = ProcessId(0);
        let [done, failed] = [(); 2].map(|()| outcomes.words.take().unwrap());
        outcomes.tell(Told::Done { process, completion: done });
        let error = CommandError::PeerGone(PEER);
        outcomes.tell(Told::Failed { process, completion: Some(failed), error, sent_bytes: 7 });
        assert_eq!(outcomes.words.finish(done), Some(Ok(())));
        assert_eq!(outcomes.words.finish(failed), Some(Err(CommandFailure { error, sent_bytes: 7 })));
        assert!(!outcomes.owes_program());
        outcomes.tell(Told::Failed { process, completion: None, error, sent_bytes: 0 });
        assert!(matches!(outcomes.take_line(), Some(Line::CommandRefused(_))));
        outcomes.tell(Told::PeerLeft { node: PEER });
        assert!(!outcomes.owes_program());
        assert!(matches!(outcomes.take_gone(), Some((PEER, Gone::Left))));
    }

    #[test]
    fn the_host_is_rung_once_until_it_has_answered() {
        let mut outcomes = outcomes();
        assert!(!outcomes.ring_host(), "there is no bell");
        let bell = Arc::new(HostBell::new(mapwire_host::waiting::WaitStrategy::Event));
        outcomes.set_host_bell(Some(Arc::clone(&bell)));
        assert!(outcomes.ring_host() && outcomes.ring_host());
        assert_eq!(bell.rings(), 1);
        outcomes.answer_host();
        assert!(outcomes.ring_host());
        assert_eq!(bell.rings(), 2);
    }
}
