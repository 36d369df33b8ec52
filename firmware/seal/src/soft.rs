//! AES-128-GCM in Rust, for the simulator and for tests.

use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce, Tag};

use crate::aead::{Aead, KEY_BYTES, NONCE_BYTES, TAG_BYTES};

/// [`Aead`] by the crate `aes-gcm`: pure, and a tenth as fast as a computer's.
#[expect(
    missing_debug_implementations,
    reason = "it holds a key, which is never printed"
)]
pub struct SoftAead(Aes128Gcm);

impl Aead for SoftAead {
    const HEAP_BYTES: usize = 0;

    fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(Aes128Gcm::new(key.into()))
    }

    fn seal(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = Nonce::from_slice(nonce);
        match self.0.encrypt_in_place_detached(nonce, aad, bytes) {
            Ok(tag) => tag.into(),
            // There are more bytes than GCM takes, 64 GiB: nothing leaves in clear, and no receiver takes it.
            Err(_) => {
                bytes.fill(0);
                [0; TAG_BYTES]
            }
        }
    }

    fn open(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], sealed: &mut [u8]) -> bool {
        let Some((bytes, tag)) = sealed.split_last_chunk_mut::<TAG_BYTES>() else {
            return false;
        };
        let (nonce, tag) = (Nonce::from_slice(nonce), Tag::from_slice(tag));
        let opened = self.0.decrypt_in_place_detached(nonce, aad, bytes, tag);
        opened.is_ok()
    }
}
