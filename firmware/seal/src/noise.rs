//! The handshake: `KKpsk0` of the Noise protocol framework (revision 34), by the crate `snow`.
//!
//! Both static keys are known beforehand, so each side proves its own and learns nothing new about the other. The job's secret is mixed in
//! first, so that an outsider learns nothing at all. Ephemeral keys make the keys of a session useless once it is gone.

use alloc::boxed::Box;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

use crate::aead::KEY_BYTES;
use crate::keys::{JobSecret, PublicKey, StaticKey};
use crate::wire::{FIRST_BYTES, GRANT_BYTES, HEADER_BYTES, Header, SECOND_BYTES, u32_at};

const PROTOCOL: &str = "Noise_KKpsk0_25519_ChaChaPoly_BLAKE2s";
const LABEL: &[u8; 12] = b"mapwire seal";
/// Heap memory that `snow` uses for one handshake, approximately.
pub(crate) const HANDSHAKE_HEAP_BYTES: usize = 1_024;

/// What a node brings to a handshake.
pub(crate) type Own<'a> = (&'a JobSecret, &'a StaticKey);

pub(crate) struct Keys {
    sealing: [u8; KEY_BYTES],
    opening: [u8; KEY_BYTES],
}

impl Keys {
    pub(crate) const fn sealing(&self) -> &[u8; KEY_BYTES] {
        &self.sealing
    }

    pub(crate) const fn opening(&self) -> &[u8; KEY_BYTES] {
        &self.opening
    }

    /// The keys from a finished handshake: the first 16 bytes of each 32-byte HKDF output.
    fn of(mut handshake: HandshakeState) -> Option<Self> {
        let initiator = handshake.is_initiator();
        let (first, second) = handshake.dangerously_get_raw_split();
        let (first, second) = (*first.first_chunk()?, *second.first_chunk()?);
        let (sealing, opening) = if initiator { (first, second) } else { (second, first) };
        Some(Self { sealing, opening })
    }
}

/// A handshake whose first message has been made.
pub(crate) struct Started(HandshakeState);

impl Started {
    pub(crate) fn new(
        own: Own<'_>,
        peer: &PublicKey,
        initiate: &Header,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> Option<(Self, [u8; FIRST_BYTES])> {
        let mut handshake = build(own, peer, initiate, entropy, true)?;
        let mut message = [0; FIRST_BYTES];
        let length = handshake.write_message(&[], &mut message).ok()?;
        (length == FIRST_BYTES).then_some((Self(handshake), message))
    }

    /// Takes the second message. A wrong one changes nothing.
    pub(crate) fn take(&mut self, message: &[u8; SECOND_BYTES]) -> Option<Grant> {
        let mut payload = [0; SECOND_BYTES];
        let length = self.0.read_message(message, &mut payload).ok()?;
        (length == GRANT_BYTES).then(|| Grant { index: u32_at(&payload, 0), continues: payload[4] == 1 })
    }

    /// The keys, once a message was accepted.
    pub(crate) fn finish(self) -> Option<Keys> {
        self.0.is_handshake_finished().then(|| Keys::of(self.0)).flatten()
    }
}

/// Payload of the responder's second message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    index: u32,
    continues: bool,
}

impl Grant {
    pub(crate) const fn new(index: u32, continues: bool) -> Self {
        Self { index, continues }
    }

    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Whether the responder already has another session with the initiator.
    pub(crate) const fn continues(&self) -> bool {
        self.continues
    }
}

/// Answers a first message with a second one, which carries `grant`; `None` if the first does not come from the peer.
pub(crate) fn answer(
    own: Own<'_>,
    peer: &PublicKey,
    (initiate, message): (&Header, &[u8; FIRST_BYTES]),
    grant: Grant,
    entropy: &mut dyn FnMut(&mut [u8]),
) -> Option<([u8; SECOND_BYTES], Keys)> {
    let mut handshake = build(own, peer, initiate, entropy, false)?;
    handshake.read_message(message, &mut [0; FIRST_BYTES]).ok()?;
    let mut answer = [0; SECOND_BYTES];
    let mut payload = [0; GRANT_BYTES];
    payload[..4].copy_from_slice(&grant.index.to_le_bytes());
    payload[4] = grant.continues.into();
    let length = handshake.write_message(&payload, &mut answer).ok()?;
    if length != SECOND_BYTES {
        return None;
    }
    Some((answer, Keys::of(handshake)?))
}

/// Of the node of `own` with `peer`; `initiate` is the header of the datagram that carries the first message.
fn build(
    own: Own<'_>,
    peer: &PublicKey,
    initiate: &Header,
    entropy: &mut dyn FnMut(&mut [u8]),
    initiator: bool,
) -> Option<HandshakeState> {
    // Binds version, job, both nodes, the initiator's index and whether it continues a session.
    let mut prologue = [0; LABEL.len() + HEADER_BYTES];
    prologue[..LABEL.len()].copy_from_slice(LABEL);
    prologue[LABEL.len()..].copy_from_slice(&initiate.emit());
    let mut ephemeral = [0; 32];
    entropy(&mut ephemeral);
    let builder = Builder::with_resolver(PROTOCOL.parse().ok()?, Box::new(Lent(ephemeral)))
        .psk(0, own.0.bytes())
        .and_then(|builder| builder.local_private_key(own.1.bytes()))
        .and_then(|builder| builder.remote_public_key(&peer.0))
        .and_then(|builder| builder.prologue(&prologue))
        .ok()?;
    if initiator { builder.build_initiator().ok() } else { builder.build_responder().ok() }
}

/// `snow`'s algorithms with entropy drawn beforehand: a handshake draws once, for its ephemeral key.
struct Lent([u8; 32]);

impl CryptoResolver for Lent {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Returns its bytes once, and fails afterwards.
struct Once(Option<[u8; 32]>);

impl Random for Once {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        let drawn = self.0.take().ok_or(snow::Error::Rng)?;
        let from = drawn.get(..bytes.len()).ok_or(snow::Error::Rng)?;
        bytes.copy_from_slice(from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mapwire_wire::NodeId;

    use super::*;

    /// Whether a handshake succeeds between these sides, given what each believes.
    fn agrees(
        (secret, own_seed, peer, initiate): (u8, u8, u8, Header),
        (its_secret, its_own, its_peer, its_initiate): (u8, u8, u8, Header),
    ) -> bool {
        let own = |secret: u8, key: u8| (JobSecret::new([secret; 32]), StaticKey::new([key; 32]));
        let public = |seed: u8| StaticKey::new([seed; 32]).public();
        let mut entropy = |bytes: &mut [u8]| bytes.fill(99);
        let (secret, key) = own(secret, own_seed);
        let (mut started, first) = Started::new((&secret, &key), &public(peer), &initiate, &mut entropy).unwrap();
        let (its_secret, its_key) = own(its_secret, its_own);
        let grant = Grant::new(7, true);
        let Some((mut second, its_keys)) =
            answer((&its_secret, &its_key), &public(its_peer), (&its_initiate, &first), grant, &mut entropy)
        else {
            return false;
        };
        second[40] ^= 1;
        assert!(started.take(&second).is_none());
        second[40] ^= 1;
        let taken = started.take(&second).unwrap();
        assert_eq!((taken.index(), taken.continues()), (7, true));
        let keys = started.finish().unwrap();
        assert_eq!(keys.sealing, its_keys.opening);
        assert_eq!(keys.opening, its_keys.sealing);
        assert_ne!(keys.sealing, keys.opening);
        true
    }

    #[test]
    fn both_sides_agree_only_on_the_same_secret_keys_nodes_job_and_index() {
        let (one, two) = (NodeId(1), NodeId(2));
        let header = Header::initiate(one, two, 3, 4, false);
        let sides = |initiate| ((5, 1, 2, header), (5, 2, 1, initiate));
        let (mine, its) = sides(header);
        assert!(agrees(mine, its));
        assert!(!agrees((6, 1, 2, header), its), "another secret");
        assert!(!agrees((5, 3, 2, header), its), "another key");
        assert!(!agrees((5, 1, 3, header), its), "for another key");
        for other in [
            Header::initiate(NodeId(3), two, 3, 4, false),
            Header::initiate(one, NodeId(3), 3, 4, false),
            Header::initiate(one, two, 9, 4, false),
            Header::initiate(one, two, 3, 9, false),
            Header::initiate(one, two, 3, 4, true),
        ] {
            let (mine, its) = sides(other);
            assert!(!agrees(mine, its), "{other:?}");
        }
    }
}
