//! One session: two keys, one side's counter and the other's window.

use crate::aead::Aead;
use crate::noise::Keys;
use crate::replay::Window;
use crate::wire::{SEALED_BACK_BYTES, SEALED_FRONT_BYTES, nonce, write_sealed};

/// When to replace keys.
///
/// AES-GCM under one key stays indistinguishable from random to a chance of about 2^-57 for 2^23 datagrams of 64 KiB, or for 2^28 of
/// 2 KiB (RFC 9001 §6.6, appendix B.1). Counters make nonces, so they never repeat, and the limit of 2^32 for random ones (NIST
/// SP 800-38D §8.3) does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Datagrams sealed by one side after which a new handshake begins, at least 1. After four times as many the key seals nothing more.
    pub datagrams: u64,
    /// Nanoseconds after which the next datagram begins a new handshake. After half as many again the keys are forgotten.
    pub time_ns: u64,
    /// How long datagrams under the former keys are still opened, in nanoseconds.
    pub grace_ns: u64,
    /// How long a peer may leave several datagrams unanswered before a new handshake begins, in nanoseconds: it may have lost the session.
    pub silence_ns: u64,
}

impl Default for Rotation {
    /// 2^23 datagrams, 120 s, 10 s of grace, 2 s of silence.
    fn default() -> Self {
        Self { datagrams: 1 << 23, time_ns: 120_000_000_000, grace_ns: 10_000_000_000, silence_ns: 2_000_000_000 }
    }
}

/// Unanswered datagrams that count as silence: fewer may be the end of a conversation.
const SILENT_DATAGRAMS: u64 = 8;

/// Whether a session may still seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Good,
    /// It may seal, and a new handshake is due.
    Worn,
    /// It may not seal.
    Spent,
}

/// Why a datagram was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    Replay,
    Tag,
}

pub(crate) struct Session {
    sealing: Aead,
    opening: Aead,
    /// Index drawn by the peer.
    remote: u32,
    /// Index drawn here.
    local: u32,
    /// Counter of the next datagram to seal.
    counter: u64,
    /// Counter from which a new handshake is due.
    worn_at: u64,
    /// Value of `counter` when the peer last sent something.
    answered: u64,
    /// When the peer has been silent for too long; never, while nothing is unanswered.
    silent_at_ns: u64,
    rotate_at_ns: u64,
    expires_at_ns: u64,
    window: Window,
}

impl Session {
    pub(crate) fn new(keys: &Keys, local: u32, remote: u32, now_ns: u64, rotation: &Rotation) -> Self {
        let rotate_at_ns = now_ns.saturating_add(rotation.time_ns);
        Self {
            sealing: Aead::new(keys.sealing()),
            opening: Aead::new(keys.opening()),
            remote,
            local,
            counter: 0,
            worn_at: rotation.datagrams.max(1),
            answered: 0,
            silent_at_ns: u64::MAX,
            rotate_at_ns,
            expires_at_ns: rotate_at_ns.saturating_add(rotation.time_ns / 2),
            window: Window::new(),
        }
    }

    pub(crate) const fn local(&self) -> u32 {
        self.local
    }

    pub(crate) const fn expires_at_ns(&self) -> u64 {
        self.expires_at_ns
    }

    #[inline]
    pub(crate) fn condition(&self, now_ns: u64) -> Condition {
        if now_ns < self.rotate_at_ns && now_ns < self.silent_at_ns && self.counter < self.worn_at {
            return Condition::Good;
        }
        self.cold_condition(now_ns)
    }

    #[cold]
    fn cold_condition(&self, now_ns: u64) -> Condition {
        if now_ns >= self.expires_at_ns || self.counter >= self.worn_at.saturating_mul(4) {
            return Condition::Spent;
        }
        let silent = now_ns >= self.silent_at_ns && self.counter.saturating_sub(self.answered) >= SILENT_DATAGRAMS;
        if silent || now_ns >= self.rotate_at_ns || self.counter >= self.worn_at {
            return Condition::Worn;
        }
        Condition::Good
    }

    /// Starts waiting for a sign of life of the peer, unless already waiting.
    #[inline]
    pub(crate) fn await_answer(&mut self, now_ns: u64, rotation: &Rotation) {
        if self.silent_at_ns == u64::MAX {
            self.silent_at_ns = now_ns.saturating_add(rotation.silence_ns);
        }
    }

    /// Encrypts the bytes between the room in front and the room behind, and fills both. `false` without that room.
    #[inline]
    pub(crate) fn seal(&mut self, datagram: &mut [u8]) -> bool {
        let Ok(length) = u16::try_from(datagram.len()) else {
            return false;
        };
        let Some((front, rest)) = datagram.split_first_chunk_mut::<SEALED_FRONT_BYTES>() else {
            return false;
        };
        let Some((bytes, tag)) = rest.split_last_chunk_mut::<SEALED_BACK_BYTES>() else {
            return false;
        };
        let counter = self.counter;
        self.counter += 1;
        write_sealed(front, self.remote, counter, length);
        *tag = self.sealing.seal(&nonce(counter), front, bytes);
        true
    }

    /// Decrypts `sealed`, whose first bytes are `front`, if it is genuine and new.
    #[inline]
    pub(crate) fn open(
        &mut self,
        counter: u64,
        front: &[u8; SEALED_FRONT_BYTES],
        sealed: &mut [u8],
    ) -> Result<(), NotOpened> {
        if !self.window.is_new(counter) {
            return Err(NotOpened::Replay);
        }
        if !self.opening.open(&nonce(counter), front, sealed) {
            return Err(NotOpened::Tag);
        }
        self.window.mark(counter);
        self.answered = self.counter;
        self.silent_at_ns = u64::MAX;
        Ok(())
    }
}
