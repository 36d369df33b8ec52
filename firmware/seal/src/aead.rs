//! AES-128-GCM (NIST SP 800-38D) by the processor's instructions.

#[cfg(feature = "sealing")]
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

pub const KEY_BYTES: usize = 16;
pub const NONCE_BYTES: usize = 12;
pub const TAG_BYTES: usize = 16;

/// Authenticated encryption under one key. Never seal twice with the same nonce.
#[cfg(feature = "sealing")]
#[expect(missing_debug_implementations, reason = "it holds a key, which is never printed")]
pub struct Aead(Option<LessSafeKey>);

#[cfg(feature = "sealing")]
impl Aead {
    /// Prepares `key` for sealing and opening.
    #[must_use]
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        // A key of this length is always accepted. Without one, nothing opens and nothing leaves in clear.
        let key = UnboundKey::new(&AES_128_GCM, key);
        Self(key.ok().map(LessSafeKey::new))
    }

    /// Encrypts `bytes` in place and returns the tag over them and `aad`.
    #[inline]
    pub fn seal(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let sealed = self.0.as_ref().and_then(|key| {
            let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), bytes);
            tag.ok()?.as_ref().try_into().ok()
        });
        sealed.unwrap_or_else(|| {
            // More bytes than the 64 GiB of GCM: no receiver accepts this.
            bytes.fill(0);
            [0; TAG_BYTES]
        })
    }

    /// Checks the tag, the last [`TAG_BYTES`] of `sealed`, and decrypts the bytes before it in place. `false` if the tag is wrong or
    /// missing; those bytes are then undefined.
    #[inline]
    pub fn open(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], sealed: &mut [u8]) -> bool {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0.as_ref().is_some_and(|key| key.open_in_place(nonce, Aad::from(aad), sealed).is_ok())
    }
}

#[cfg(all(test, feature = "sealing"))]
mod tests {
    extern crate alloc;

    use alloc::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_opens_what_it_sealed_and_nothing_that_was_changed(
            key: [u8; KEY_BYTES],
            plain in proptest::collection::vec(any::<u8>(), 0..100),
            bit in 0usize..(12 + 20 + 100 + 16) * 8,
        ) {
            let aead = Aead::new(&key);
            let (mut nonce, mut aad, mut sealed) = ([7; NONCE_BYTES], [8; 20], plain.clone());
            let tag = aead.seal(&nonce, &aad, &mut sealed);
            sealed.extend(tag);
            let (at, flip) = (bit / 8, 1 << (bit % 8));
            let all = nonce.iter_mut().chain(&mut aad).chain(&mut sealed);
            let changed = all.skip(at).take(1).map(|byte| *byte ^= flip).count();
            prop_assert_eq!(aead.open(&nonce, &aad, &mut sealed), changed == 0);
            if changed == 0 {
                prop_assert_eq!(&sealed[..plain.len()], &plain[..]);
            }
        }
    }

    #[test]
    fn what_is_shorter_than_a_tag_does_not_open() {
        let aead = Aead::new(&[1; KEY_BYTES]);
        for length in 0..TAG_BYTES {
            assert!(!aead.open(&[2; NONCE_BYTES], &[], &mut vec![3; length]));
        }
    }
}
