//! AES-128-GCM by the instructions of the processor, through `aws-lc-rs`.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use mapwire_seal::{Aead, KEY_BYTES, NONCE_BYTES, TAG_BYTES};

/// A key as the processor wants it; `None` if the library had no memory for it: it then opens nothing, and seals zeros.
#[expect(
    missing_debug_implementations,
    reason = "it holds a key, which is never printed"
)]
pub struct NativeAead(Option<LessSafeKey>);

impl Aead for NativeAead {
    /// The expanded key, which AWS-LC allocates.
    const HEAP_BYTES: usize = 600;

    fn new(key: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, key);
        Self(key.ok().map(LessSafeKey::new))
    }

    #[inline]
    fn seal(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let sealed = self.0.as_ref().and_then(|key| {
            let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), bytes);
            tag.ok()?.as_ref().try_into().ok()
        });
        sealed.unwrap_or_else(|| {
            // Nothing leaves in clear, and no receiver takes it.
            bytes.fill(0);
            [0; TAG_BYTES]
        })
    }

    #[inline]
    fn open(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], sealed: &mut [u8]) -> bool {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0
            .as_ref()
            .is_some_and(|key| key.open_in_place(nonce, Aad::from(aad), sealed).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use mapwire_seal::SoftAead;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_the_one_in_rust(
            key: [u8; KEY_BYTES],
            nonce: [u8; NONCE_BYTES],
            aad in proptest::collection::vec(any::<u8>(), 0..40),
            plain in proptest::collection::vec(any::<u8>(), 0..3_000),
        ) {
            let (native, soft) = (NativeAead::new(&key), SoftAead::new(&key));
            let mut bytes = plain.clone();
            let tag = native.seal(&nonce, &aad, &mut bytes);
            let mut expected = plain.clone();
            prop_assert_eq!(tag, soft.seal(&nonce, &aad, &mut expected));
            prop_assert_eq!(&bytes, &expected);
            let sealed = [&bytes[..], &tag].concat();
            let mut by_native = sealed.clone();
            prop_assert!(native.open(&nonce, &aad, &mut by_native));
            prop_assert_eq!(&by_native[..plain.len()], &plain[..]);
            let mut by_soft = sealed;
            prop_assert!(soft.open(&nonce, &aad, &mut by_soft));
            prop_assert_eq!(&by_soft[..plain.len()], &plain[..]);
        }

        #[test]
        fn it_opens_nothing_that_was_changed(
            key: [u8; KEY_BYTES],
            plain in proptest::collection::vec(any::<u8>(), 0..100),
            bit in 0usize..(12 + 20 + 100 + 16) * 8,
        ) {
            let aead = NativeAead::new(&key);
            let (mut nonce, mut aad, mut sealed) = ([7; NONCE_BYTES], [8; 20], plain);
            let tag = aead.seal(&nonce, &aad, &mut sealed);
            sealed.extend(tag);
            let (at, flip) = (bit / 8, 1 << (bit % 8));
            let all = nonce.iter_mut().chain(&mut aad).chain(&mut sealed);
            let changed = all.skip(at).take(1).map(|byte| *byte ^= flip).count();
            prop_assert_eq!(aead.open(&nonce, &aad, &mut sealed), changed == 0);
        }
    }

    #[test]
    fn what_is_shorter_than_a_tag_does_not_open() {
        let aead = NativeAead::new(&[1; KEY_BYTES]);
        for length in 0..TAG_BYTES {
            assert!(!aead.open(&[2; NONCE_BYTES], &[], &mut vec![3; length]));
        }
    }
}
