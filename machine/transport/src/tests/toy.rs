//! The smallest transport: queues of one process. All that a transport needs stands in this file.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use mapwire_wire::{Header, NodeId};

use super::conformance;
use crate::payload::{Payload, Received};
use crate::peers::Peers;
use crate::transport::{Abilities, Packet, ReceiveError, SendError, Transport};

const MAX_PAYLOAD_BYTES: usize = 8192;
const MAX_PACKETS: usize = 16;

/// Packets from one node to another.
#[derive(Default)]
struct Queue {
    packets: VecDeque<(Header, Vec<u8>)>,
    is_closed: bool,
}

type Shared = Arc<Mutex<Queue>>;

fn lock(queue: &Shared) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap()
}

struct Connection {
    sends: Shared,
    receives: Shared,
    /// Copy of the packet at the head, once it was shown.
    head: Option<(Header, Vec<u8>)>,
    is_closed: bool,
}

impl Connection {
    fn close(&mut self) {
        self.is_closed = true;
        lock(&self.sends).is_closed = true;
    }

    fn has_input(&self) -> bool {
        let queue = lock(&self.receives);
        !queue.packets.is_empty() || queue.is_closed || self.is_closed
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        lock(&self.receives).is_closed = true;
    }
}

#[derive(Default)]
struct Toy(Peers<Connection>);

impl Toy {
    fn open(&mut self, peer: NodeId) -> Result<&mut Connection, SendError> {
        let connection = self.0.get_mut(peer)?;
        let is_closed = connection.is_closed || lock(&connection.sends).is_closed;
        if is_closed { Err(SendError::PeerGone(peer)) } else { Ok(connection) }
    }
}

impl Transport for Toy {
    fn abilities(&self, _: NodeId) -> Abilities {
        Abilities { lossless: true, passes_memory: false, remote_access: false, rings: false }
    }

    fn max_payload_bytes(&self) -> usize {
        MAX_PAYLOAD_BYTES
    }

    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        let connection = self.open(to)?;
        let mut bytes = vec![0; payload.len_bytes()];
        if bytes.len() > MAX_PAYLOAD_BYTES {
            return Err(SendError::TooLong { len_bytes: bytes.len(), max_bytes: MAX_PAYLOAD_BYTES });
        }
        let mut rest = &mut bytes[..];
        for piece in payload.pieces() {
            let (part, others) = rest.split_at_mut(piece.len());
            piece.copy_to_slice(part);
            rest = others;
        }
        let mut queue = lock(&connection.sends);
        if queue.packets.len() == MAX_PACKETS {
            return Err(SendError::WouldBlock(to));
        }
        queue.packets.push_back((*header, bytes));
        Ok(())
    }

    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        let Ok(Some(from)) = self.0.poll(|it| Ok::<_, std::convert::Infallible>(it.has_input())) else {
            return Ok(None);
        };
        let connection = self.0.get_mut(from).unwrap();
        connection.head = lock(&connection.receives).packets.front().cloned();
        if connection.head.is_none() {
            self.0.forget(from);
            return Err(ReceiveError::PeerGone(from));
        }
        let head = self.0.get(from).and_then(|connection| connection.head.as_ref());
        Ok(head.map(|(header, bytes)| Packet { from, header, payload: Received::Inline(bytes) }))
    }

    fn release(&mut self, from: NodeId) {
        if let Ok(connection) = self.0.get_mut(from)
            && connection.head.take().is_some()
        {
            lock(&connection.receives).packets.pop_front();
        }
    }

    fn has_input(&mut self) -> bool {
        self.0.iter().any(|(_, connection)| connection.has_input())
    }

    fn flush(&mut self) {}

    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        Ok(lock(&self.open(to)?.sends).packets.is_empty())
    }

    fn disconnect(&mut self, peer: NodeId) {
        if let Ok(connection) = self.0.get_mut(peer) {
            connection.close();
        }
    }
}

#[test]
fn a_transport_in_one_file_conforms() {
    conformance::run(&mut |nodes| {
        let queues: Vec<Shared> = (0..nodes * nodes).map(|_| Shared::default()).collect();
        let toy = |me: usize| {
            let mut toy = Toy::default();
            for peer in (0..nodes).filter(|&peer| peer != me) {
                let (sends, receives) = (queues[me * nodes + peer].clone(), queues[peer * nodes + me].clone());
                let connection = Connection { sends, receives, head: None, is_closed: false };
                toy.0.connect(NodeId(peer as u16), Box::new(connection));
            }
            Box::new(toy) as Box<dyn Transport>
        };
        (0..nodes).map(toy).collect()
    });
}
