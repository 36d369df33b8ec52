//! The thread that meets donors and looks after what they have.

use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use super::copies::Copies;
use super::lenders::Lenders;
use super::session::Session;
use crate::error::Result;

/// How long donors are left alone after a meeting that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// How often the number of donors is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What the thread does: meets donors, sends them discards, and brings pages to the disk when donors die.
pub(super) fn keep_donors(lenders: &Lenders, copies: &Copies, report: fn(&str), woken: &Receiver<()>) {
    if woken.recv().is_err() {
        return;
    }
    let mut has_warned = false;
    let mut living = 0;
    let mut retired = Vec::new();
    loop {
        let pause = match copies.meeting() {
            None => match lenders.meet() {
                Ok(Some(session)) => {
                    has_warned = false;
                    living = session.donors();
                    copies.begin_session(session);
                    LOOK
                }
                not => {
                    if !std::mem::replace(&mut has_warned, true) {
                        report(&why(&not));
                    }
                    PAUSE
                }
            },
            Some(session) => {
                let client = &copies.client;
                if client.tend(copies, &session, &mut living) {
                    has_warned = false;
                } else if !std::mem::replace(&mut has_warned, true) {
                    report(
                        "a donor has died, and pages that one other has cannot be brought to the disk: the disk is full, or the other does not answer; it is tried again",
                    );
                }
                if session.is_over() && client.forget_donors(copies) {
                    retired.push(session);
                } else {
                    client.tell_discards(copies, &session);
                }
                LOOK
            }
        };
        // Here, and never in a thread that serves faults: the end of a node waits for its threads.
        retired.retain(|old: &Arc<Session>| Arc::strong_count(old) > 1);
        match woken.recv_timeout(pause) {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn why(not: &Result<Option<Session>>) -> String {
    match not {
        Err(error) => format!("no donors: {error}; the disk serves alone"),
        Ok(_) => "there are fewer donors than copies; the disk serves alone".to_owned(),
    }
}
