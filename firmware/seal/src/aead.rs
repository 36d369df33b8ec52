//! Encryption with authentication, which comes from outside: a computer has it in its instructions, the simulator in Rust.

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;

/// AES-128-GCM (NIST SP 800-38D) under one key. A nonce is never used twice for sealing.
pub trait Aead: Sized {
    /// Bytes on the heap that a value owns.
    const HEAP_BYTES: usize;

    /// Prepares `key` for sealing and opening.
    fn new(key: &[u8; KEY_BYTES]) -> Self;

    /// Encrypts `bytes` in place and gives the tag of them and of `aad`.
    fn seal(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES];

    /// Checks the tag, which is the last [`TAG_BYTES`] of `sealed`, and decrypts in place what stands before it. `false` if the
    /// tag is wrong or missing; what stands before it is then undefined.
    fn open(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], sealed: &mut [u8]) -> bool;
}
