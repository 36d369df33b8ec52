//! The command queue of this process (VMMC §4.5): entries are written by application threads and read by the NIC's driver.
//! It is the same ring as between processes; what is in it is as little trusted.

use mapwire_node::Node;
use mapwire_translation::TranslationDesign;
use mapwire_transport::payload::Received;
use mapwire_transport::shm::channel::{Channel, ChannelError};
use mapwire_transport::shm::ring::{PushError, RingConfig};
use mapwire_wire::{
    COMMAND_BYTES, CommandHeader, CommandRepr, INLINE_BYTES, ProcessId, SHORT_BYTES, SHORT_SIGNAL_BYTES,
    SIGNAL_TRAILER_BYTES, WireError,
};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const QUEUE_ENTRIES: u32 = 64;

/// The queue and both its ends: the library writes it, the driver reads it, both under the driver's lock.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    ring: Channel,
    /// Commands that have been written, and that have been read.
    written: u64,
    read: u64,
}

impl CommandQueue {
    pub(crate) fn new() -> Result<Self, ChannelError> {
        let config = RingConfig { slots: QUEUE_ENTRIES, bulk_bytes: 4096, max_payload_bytes: INLINE_BYTES as u32 };
        Ok(Self { ring: Channel::loopback(&config)?, written: 0, read: 0 })
    }

    /// Writes a command and the data that travels in it. `Ok(false)` when the queue is full.
    #[inline]
    pub(crate) fn submit(&mut self, command: &CommandRepr, data: &[u8]) -> Result<bool, WireError> {
        let mut inline = [0; INLINE_BYTES];
        let (header, length) = command.emit(data, &mut inline)?;
        let mut bytes = [0; COMMAND_BYTES];
        bytes.copy_from_slice(header.as_bytes());
        match self.ring.sender.try_push(&bytes, &[inline[..length].into()]) {
            Ok(()) => {
                self.written += 1;
                Ok(true)
            }
            // `emit` writes no more than fits, and nobody else has this ring.
            Err(PushError::Full | PushError::TooLong { .. } | PushError::Corrupt(_)) => Ok(false),
        }
    }

    /// Writes a command and serves it, and what waits before it. With nothing before it the command goes to the NIC as it
    /// is, without lying in the queue first. `Ok(false)` when the queue is full.
    #[inline]
    pub(crate) fn submit_to<D: TranslationDesign>(
        &mut self,
        node: &mut Node<D>,
        process: ProcessId,
        command: &CommandRepr,
        data: &[u8],
    ) -> Result<bool, WireError> {
        if !self.has_commands() && node.accepts_command(process) {
            match *command {
                CommandRepr::ShortSend { signal: Some(signal), .. } if data.len() <= SHORT_SIGNAL_BYTES => {
                    let mut inline = [0; SHORT_BYTES];
                    let end = data.len() + SIGNAL_TRAILER_BYTES;
                    inline[..data.len()].copy_from_slice(data);
                    inline[data.len()..end].copy_from_slice(&signal.to_bytes());
                    node.handle_own_command(process, command, &inline[..end]);
                }
                CommandRepr::LongSend { signal: Some(signal), .. } => {
                    node.handle_own_command(process, command, &signal.to_bytes());
                }
                CommandRepr::Atomic { atomic, .. } => {
                    node.handle_own_command(process, command, &atomic.to_bytes());
                }
                _ => node.handle_own_command(process, command, data),
            }
            return Ok(true);
        }
        let submitted = self.submit(command, data)?;
        self.serve(node, process);
        Ok(submitted)
    }

    /// Hands commands to the NIC while it takes them. Whether there were any.
    #[inline]
    pub(crate) fn serve<D: TranslationDesign>(&mut self, node: &mut Node<D>, process: ProcessId) -> bool {
        let mut served = false;
        while node.accepts_command(process) {
            let Ok(Some(entry)) = self.ring.receiver.peek() else {
                break;
            };
            if let (Ok(header), Received::Inline(inline)) =
                (CommandHeader::read_from_bytes(entry.header), entry.payload)
            {
                node.handle_command(process, &header, inline);
            }
            self.ring.receiver.release();
            self.read += 1;
            served = true;
        }
        served
    }

    /// How many commands have been written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether the first `count` commands that were written have been read.
    pub(crate) fn has_read(&self, count: u64) -> bool {
        self.read >= count
    }

    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        self.ring.receiver.has_packet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_nic::Config;
    use mapwire_node::{NoPayload, NodeConfig, Told};
    use mapwire_translation::{CacheConfig, Hierarchical, PinRules};
    use mapwire_wire::{Endpoint, HandlerId, Key, NodeId};

    const PROCESS: ProcessId = ProcessId(0);

    fn node() -> Node<Hierarchical> {
        let nic = Config {
            node: NodeId(0),
            reply_keys: vec![Key([1; 16]); 2],
            memory_bytes: 4 << 20,
            max_payload_bytes: RingConfig::default().max_payload_bytes as usize,
            delivery: mapwire_nic::Delivery::Lossless,
        };
        let design = Hierarchical::new(CacheConfig::default()).unwrap();
        let mut node = Node::new(NodeConfig { nic, uid: 0 }, design).unwrap();
        node.open_process(PROCESS, PinRules::default(), 4).unwrap();
        node
    }

    #[test]
    fn what_is_no_command_is_refused_and_those_behind_it_are_served() {
        let (mut queue, mut node) = (CommandQueue::new().unwrap(), node());
        // Entries that the library never writes.
        let mut state = 7_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        let legal = CommandRepr::Handler { to: Endpoint::first_of(NodeId(1)), handler: HandlerId(9), length: 5 };
        for round in 0..500 {
            let header: [u8; COMMAND_BYTES] = core::array::from_fn(|_| noise() | 0x80);
            let inline: Vec<u8> = (0..usize::from(noise()) % 137).map(|_| noise()).collect();
            let pushed = queue.ring.sender.try_push(&header, &[inline[..].into()]);
            assert_eq!(pushed, Ok(()), "round {round}");
            assert_eq!(queue.submit(&legal, b"hello"), Ok(true));
            assert!(queue.serve(&mut node, PROCESS));
            assert!(!queue.has_commands());
            let sent = core::iter::from_fn(|| {
                let packet = node.poll_transmit()?;
                let to = packet.to;
                node.handle_transmitted(to);
                Some(to)
            });
            assert_eq!(sent.collect::<Vec<_>>(), [NodeId(1)], "round {round}");
            while let Some(told) = node.poll_told(&NoPayload, || 0) {
                assert!(matches!(told, Told::Failed { completion: None, .. }), "{told:?}");
            }
        }
    }

    #[test]
    fn a_full_queue_takes_no_more_until_it_is_served() {
        let (mut queue, mut node) = (CommandQueue::new().unwrap(), node());
        let command = CommandRepr::Handler { to: Endpoint::first_of(NodeId(1)), handler: HandlerId(9), length: 0 };
        let mut written = 0;
        while queue.submit(&command, &[]).unwrap() {
            written += 1;
        }
        assert_eq!(written, QUEUE_ENTRIES);
        let mut sent = 0;
        while queue.serve(&mut node, PROCESS) {
            while let Some(packet) = node.poll_transmit() {
                let to = packet.to;
                node.handle_transmitted(to);
                sent += 1;
            }
        }
        assert_eq!(sent, written);
        assert_eq!(queue.submit(&command, &[]), Ok(true));
    }
}
