//! The handshake of client and server, and the sealed messages.
//!
//! `Noise_NNpsk0` (revision 34) by the crate `snow`: the shared secret is mixed in first, so an outsider can neither make a message that
//! the other side accepts, nor read one; ephemeral keys make recorded connections useless to whoever learns the secret later. The
//! handshake binds the first bytes of a [`Hello`].
//!
//! A message is cut into pieces. Each is its length in two bytes, little-endian, then a sealed message of Noise; its first byte says
//! whether another piece follows.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, TransportState};

use crate::protocol::{HANDSHAKE_BYTES, Hello, Malformed, Release, VERSION};
use crate::{NamesError, SharedSecret, fill_random};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const TAG_BYTES: usize = 16;
/// Longest plaintext of a piece, in bytes.
const MAX_PIECE_BYTES: usize = 65_535 - TAG_BYTES;

#[derive(Clone)]
pub(crate) struct ChannelKey([u8; 32]);

impl std::fmt::Debug for ChannelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChannelKey(…)")
    }
}

impl ChannelKey {
    pub(crate) fn new(secret: &SharedSecret) -> Self {
        Self(secret.derive("mapwire names channel", &[]))
    }

    fn start(&self, hello: &Hello, is_client: bool) -> Option<HandshakeState> {
        let header = &hello.emit()[..32];
        let resolver = Box::new(WithEntropy(DefaultResolver));
        let builder = Builder::with_resolver(PATTERN.parse().ok()?, resolver)
            .psk(0, &self.0)
            .and_then(|builder| builder.prologue(header))
            .ok()?;
        if is_client { builder.build_initiator().ok() } else { builder.build_responder().ok() }
    }

    /// The client's first record, and the state for its answer.
    pub(crate) fn hello(&self) -> Option<(Hello, Begun)> {
        let mut hello = Hello { version: VERSION, release: Release::own(), handshake: [0; HANDSHAKE_BYTES] };
        let mut handshake = self.start(&hello, true)?;
        let length = handshake.write_message(&[], &mut hello.handshake).ok()?;
        (length == HANDSHAKE_BYTES).then_some((hello, Begun(handshake)))
    }

    /// The server's answer; `None` if the client does not prove the secret.
    pub(crate) fn answer(&self, hello: &Hello) -> Option<([u8; HANDSHAKE_BYTES], Channel)> {
        let mut handshake = self.start(hello, false)?;
        let mut answer = [0; HANDSHAKE_BYTES];
        handshake.read_message(&hello.handshake, &mut answer).ok()?;
        let length = handshake.write_message(&[], &mut answer).ok()?;
        let transport = handshake.into_transport_mode().ok()?;
        (length == HANDSHAKE_BYTES).then(|| (answer, Channel::new(transport)))
    }
}

/// A handshake that waits for the server's message.
pub(crate) struct Begun(HandshakeState);

impl Begun {
    /// Completes the handshake; `None` if the server does not prove the secret.
    pub(crate) fn finish(mut self, answer: &[u8; HANDSHAKE_BYTES]) -> Option<Channel> {
        self.0.read_message(answer, &mut [0; HANDSHAKE_BYTES]).ok()?;
        Some(Channel::new(self.0.into_transport_mode().ok()?))
    }
}

/// Seals outgoing messages, and opens incoming ones.
pub(crate) struct Channel {
    transport: TransportState,
    /// Received bytes that are not opened yet.
    came: Vec<u8>,
    /// Opened pieces of an incomplete message.
    message: Vec<u8>,
    opened: u64,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel(…)")
    }
}

impl Channel {
    fn new(transport: TransportState) -> Self {
        Self { transport, came: Vec::new(), message: Vec::new(), opened: 0 }
    }

    /// Number of pieces opened: each proves that the other side has this session's keys.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Appends the sealed message to `out`.
    pub(crate) fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut pieces = message.chunks(MAX_PIECE_BYTES - 1).peekable();
        let mut plain = Vec::with_capacity(message.len().min(MAX_PIECE_BYTES - 1) + 1);
        loop {
            let piece = pieces.next().unwrap_or_default();
            plain.clear();
            plain.push(pieces.peek().is_some().into());
            plain.extend(piece);
            let sealed = plain.len() + TAG_BYTES;
            out.extend((sealed as u16).to_le_bytes());
            let at = out.len();
            out.resize(at + sealed, 0);
            self.transport.write_message(&plain, &mut out[at..]).map_err(|_| Malformed)?;
            if pieces.peek().is_none() {
                return Ok(());
            }
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.came.extend(bytes);
    }

    /// The next complete message, of up to `most` bytes.
    pub(crate) fn open(&mut self, most: usize) -> Result<Option<Vec<u8>>, Malformed> {
        loop {
            let Some((length, rest)) = self.came.split_first_chunk::<2>() else {
                return Ok(None);
            };
            let length = usize::from(u16::from_le_bytes(*length));
            if length <= TAG_BYTES {
                return Err(Malformed);
            }
            let Some(sealed) = rest.get(..length) else {
                return Ok(None);
            };
            let mut plain = vec![0; length];
            let opened = self.transport.read_message(sealed, &mut plain);
            let opened = opened.map_err(|_| Malformed)?;
            self.opened += 1;
            self.came.drain(..2 + length);
            let (follows, piece) = plain[..opened].split_first().ok_or(Malformed)?;
            if self.message.len() + piece.len() > most {
                return Err(Malformed);
            }
            self.message.extend(piece);
            match follows {
                0 => return Ok(Some(std::mem::take(&mut self.message))),
                // A piece that is followed by another must be full, so that empty ones cannot go on for ever.
                1 if piece.len() == MAX_PIECE_BYTES - 1 => {}
                _ => return Err(Malformed),
            }
        }
    }
}

/// `snow`'s algorithms with the operating system's entropy.
struct WithEntropy(DefaultResolver);

impl CryptoResolver for WithEntropy {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Entropy))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        self.0.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        self.0.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        self.0.resolve_cipher(choice)
    }
}

struct Entropy;

impl Random for Entropy {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        fill_random(bytes).map_err(|_: NamesError| snow::Error::Rng)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair() -> (Channel, Channel) {
        let key = ChannelKey::new(&SharedSecret::new([3; 32]));
        let (hello, begun) = key.hello().unwrap();
        let (answer, server) = key.answer(&hello).unwrap();
        (begun.finish(&answer).unwrap(), server)
    }

    #[test]
    fn only_the_same_secret_and_an_unchanged_hello_are_taken() {
        let key = ChannelKey::new(&SharedSecret::new([3; 32]));
        let other = ChannelKey::new(&SharedSecret::new([4; 32]));
        let (hello, _) = key.hello().unwrap();
        assert!(other.answer(&hello).is_none());
        for at in 7..crate::protocol::HELLO_BYTES {
            let mut bytes = hello.emit();
            bytes[at] ^= 1;
            if let Ok(changed) = Hello::parse(&bytes) {
                assert!(key.answer(&changed).is_none(), "{at}");
            }
        }
        let (hello, begun) = key.hello().unwrap();
        let (mut answer, _) = key.answer(&hello).unwrap();
        answer[0] ^= 1;
        assert!(begun.finish(&answer).is_none());
    }

    #[test]
    fn messages_of_any_length_come_whole_and_in_order_however_they_are_cut() {
        let (mut client, mut server) = pair();
        let messages = [0, 1, 65_000, MAX_PIECE_BYTES - 1, MAX_PIECE_BYTES, 200_000];
        let messages = messages.map(|length| (0..length).map(|at| at as u8).collect::<Vec<u8>>());
        let mut bytes = Vec::new();
        for message in &messages {
            client.seal(message, &mut bytes).unwrap();
        }
        let mut came = Vec::new();
        for piece in bytes.chunks(7_919) {
            server.feed(piece);
            while let Some(message) = server.open(1 << 20).unwrap() {
                came.push(message);
            }
        }
        assert!(came == messages, "{} came", came.len());
    }

    #[test]
    fn a_message_that_is_too_long_changed_repeated_or_from_nowhere_is_refused() {
        let (mut client, mut server) = pair();
        let mut bytes = Vec::new();
        client.seal(&[0; 100], &mut bytes).unwrap();
        server.feed(&bytes);
        assert_eq!(server.open(99), Err(Malformed));

        let (mut client, mut server) = pair();
        bytes.clear();
        client.seal(&[0; 100], &mut bytes).unwrap();
        bytes[20] ^= 1;
        server.feed(&bytes);
        assert_eq!(server.open(100), Err(Malformed));

        let (mut client, mut server) = pair();
        bytes.clear();
        client.seal(&[0; 100], &mut bytes).unwrap();
        server.feed(&bytes);
        server.feed(&bytes);
        assert!(server.open(100).unwrap().is_some());
        assert_eq!(server.open(100), Err(Malformed));

        let (_, mut server) = pair();
        server.feed(&[0; 40]);
        assert_eq!(server.open(100), Err(Malformed));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn random_bytes_open_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (_, mut server) = pair();
            server.feed(&bytes);
            prop_assert!(!matches!(server.open(1000), Ok(Some(_))));
        }
    }
}
