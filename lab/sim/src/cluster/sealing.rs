//! Envelopes of datagrams, as between machines: sealed, or plain.

use mapwire_seal::{Config, Destination, Envelope, JobSecret, Opened, Plain, PublicKey, Rotation, Sessions, StaticKey};
use mapwire_wire::NodeId;

use super::{Cluster, ClusterConfig, Delivery, Observer};
use crate::hardware::packets::Form;
use crate::random::Random;

/// When keys are made anew: soon, so that it happens.
const ROTATION: Rotation =
    Rotation { datagrams: 256, time_ns: 100_000_000, grace_ns: 20_000_000, silence_ns: 50_000_000 };

pub(super) struct Wrap(pub(super) Envelope);

impl core::fmt::Debug for Wrap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Wrap").finish_non_exhaustive()
    }
}

const fn secret() -> JobSecret {
    JobSecret::new([7; 32])
}

/// The key of a node, which it has again when it restarts.
fn key(node: NodeId) -> StaticKey {
    let mut bytes = [1; 32];
    bytes[..2].copy_from_slice(&node.0.to_le_bytes());
    StaticKey::new(bytes)
}

fn fill(random: &mut Random, bytes: &mut [u8]) {
    for part in bytes.chunks_mut(8) {
        let drawn = random.next().to_le_bytes();
        part.copy_from_slice(&drawn[..part.len()]);
    }
}

/// The public keys of all nodes, where datagrams are sealed.
pub(super) fn keys(config: &ClusterConfig) -> Vec<PublicKey> {
    let nodes = if config.delivery.is_sealed() { config.nodes } else { 0 };
    (0..nodes).map(|node| key(NodeId(node)).public()).collect()
}

impl Wrap {
    /// That of a node that starts; none where there are no datagrams.
    pub(super) fn new(config: &ClusterConfig, me: NodeId, random: &mut Random) -> Option<Self> {
        let (nodes, job) = (config.nodes.into(), secret().job());
        let Delivery::Lossy { is_sealed, .. } = config.delivery else { return None };
        if !is_sealed {
            return Some(Self(Envelope::Plain(Plain::new(me, nodes, job))));
        }
        let config = Config { me, nodes, job, secret: secret(), key: key(me), rotation: ROTATION };
        let sessions = Sessions::new(config, &mut |bytes| fill(random, bytes));
        Some(Self(Envelope::Sealed(Box::new(sessions))))
    }

    /// Tells it the keys that it misses.
    fn introduce(&mut self, keys: &[PublicKey]) {
        while let Some(node) = self.0.poll_wanted_key() {
            if let Some(key) = keys.get(usize::from(node.0)) {
                self.0.set_peer(node, *key);
            }
        }
    }

    /// Seals a datagram with room before it. False if there is no session: one begins.
    pub(super) fn seal(&mut self, clock_ns: u64, to: NodeId, datagram: &mut Vec<u8>, keys: &[PublicKey]) -> bool {
        datagram.resize(datagram.len() + self.0.back_bytes(), 0);
        let is_sealed = self.0.seal(clock_ns, to, datagram).is_ok();
        if !is_sealed {
            self.introduce(keys);
            // It asks for a handshake only of whom it knows.
            let _ = self.0.seal(clock_ns, to, &mut []);
        }
        is_sealed
    }
}

impl Cluster {
    /// Opens a datagram that has come. False if it is not one of a link, or not genuine.
    pub(super) fn open(&mut self, packet: u32, observer: &mut impl Observer) -> bool {
        let slot = &mut self.packets[packet as usize];
        let (sender, to) = (slot.from, slot.to);
        let host = &mut self.hosts[usize::from(to.0)];
        let (clock_ns, random) = (host.clock.shows(self.now_ns), &mut self.random);
        let Some(wrap) = host.wrap.as_mut().filter(|_| sender != to) else { return true };
        let [low, high] = sender.0.to_le_bytes();
        let mut entropy = |bytes: &mut [u8]| fill(random, bytes);
        let address = [low, high, slot.path];
        let opened = (wrap.0).handle(clock_ns, &address, &mut slot.payload, &mut entropy);
        wrap.introduce(&self.keys);
        match opened {
            Opened::Data { from, bytes } => {
                slot.payload.truncate(bytes.end);
                slot.payload.drain(..bytes.start);
                if self.config.delivery.is_sealed() && (slot.is_damaged || from != sender) {
                    let damaged = if slot.is_damaged { "a damaged" } else { "a" };
                    let text =
                        format!("{to} opens {damaged} datagram of {sender} as one of {from}, though they are sealed");
                    observer.broke(self.now_ns, "sealing", text);
                }
                true
            }
            // What has no cookie is rejected, and answered with one.
            Opened::Handled | Opened::Rejected(_) => {
                self.settle(to, observer);
                false
            }
        }
    }

    /// Sends what handshakes of a node have to send. Whether there was anything.
    pub(super) fn transmit_handshakes(&mut self, number: NodeId) -> bool {
        let Delivery::Lossy { paths, .. } = self.config.delivery else { return false };
        let mut sent = false;
        loop {
            let host = &mut self.hosts[usize::from(number.0)];
            let (clock_ns, random) = (host.clock.shows(self.now_ns), &mut self.random);
            let mut entropy = |bytes: &mut [u8]| fill(random, bytes);
            let wrap = host.wrap.as_mut();
            let next = wrap.and_then(|wrap| wrap.0.poll_transmit(clock_ns, &mut entropy));
            let Some(transmit) = next else { return sent };
            sent = true;
            // All paths, as between machines, unless it answers what came by one.
            let (to, by) = match transmit.to() {
                Destination::Node(node) => (node, 0..paths),
                Destination::Address(address) => match *address.as_bytes() {
                    [low, high, path] => (NodeId(u16::from_le_bytes([low, high])), path..path.saturating_add(1)),
                    _ => continue,
                },
            };
            if to.0 >= self.config.nodes {
                continue;
            }
            for path in by {
                let index = Self::slot(&mut self.packets, &mut self.free_packets);
                let slot = &mut self.packets[index as usize];
                (slot.from, slot.to, slot.form) = (number, to, Form::Datagram);
                slot.payload.extend(transmit.bytes());
                self.cast(index, path, false);
            }
        }
    }
}
