//! The raw limit: a service that gives back what it is sent.

use mapwire::Node;
use mapwire::services::{Action, Broken, Endpoint, HandlerId, NodeId, Service, endpoint};

use super::roles::{OWNER, PATIENCE};
use crate::BenchError;

const HANDLER: HandlerId = HandlerId(17);

/// Bytes of a message: as many as a request to the directory has.
const BYTES: usize = 41;

#[derive(Debug)]
struct Echo {
    asks: bool,
    /// The node that waits for an answer.
    owed: Option<Endpoint>,
    message: [u8; BYTES],
    answers: u64,
}

impl Service for Echo {
    fn handle_message(&mut self, _: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        match message.first() {
            Some(0) => self.owed = Some(from),
            Some(1) => self.answers += 1,
            _ => return Err(Broken),
        }
        Ok(())
    }

    fn handle_peer_gone(&mut self, _: u64, _: NodeId) {}

    fn handle_lost(&mut self, _: Endpoint) {}

    fn handle_time(&mut self, _: u64) {}

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let asked = std::mem::take(&mut self.asks).then(|| endpoint(OWNER));
        self.message[0] = u8::from(asked.is_none());
        let to = asked.or_else(|| self.owed.take())?;
        Some(Action::Send { to, message: &self.message })
    }

    fn poll_at(&self) -> Option<u64> {
        None
    }

    fn needs_time(&self, _: &[u8]) -> bool {
        false
    }
}

/// Registers it at this rank.
pub(super) fn register(node: &Node) -> Result<(), BenchError> {
    let echo = Echo { asks: false, owed: None, message: [0; BYTES], answers: 0 };
    Ok(node.register_service(HANDLER, echo)?)
}

/// Sends a message to the owner, and waits until it is back.
pub(super) fn round_trip(node: &Node) -> Result<(), BenchError> {
    let before = node.call_service(HANDLER, |echo: &mut Echo| {
        echo.asks = true;
        echo.answers
    })?;
    let is_back = |echo: &mut Echo| (echo.answers > before).then_some(());
    Ok(node.wait_for_service(HANDLER, Some(PATIENCE), is_back)?)
}
