//! Orders a revocation and concurrent stores of importers.
//!
//! The exporter marks the status word, then copies the memory. An importer stores, then checks the word. Each makes a full fence between
//! its two steps, so that one of them sees the other: a store is copied, or its importer learns that it may not be.

use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(all(test, loom)))]
use core::sync::atomic::fence;
#[cfg(all(test, loom))]
use loom::sync::atomic::fence;

use super::status::flags::REVOKED;

/// The status word of an export; loom's model has one of its own.
pub(crate) trait StatusWord {
    /// Sets bits of the status.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32;
    fn load(&self, order: Ordering) -> u32;
}

impl StatusWord for AtomicU32 {
    #[inline(always)]
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        Self::fetch_or(self, bits, order)
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        Self::load(self, order)
    }
}

/// Marks an export as revoked. The caller then sees every store whose importer afterwards found the export valid.
pub(crate) fn revoke(word: &impl StatusWord) {
    word.fetch_or(REVOKED, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// Whether an importer has been told of a revocation. Says nothing about its stores: see [`stores_arrived`].
#[inline(always)]
pub(crate) fn is_revoked(word: &impl StatusWord) -> bool {
    word.load(Ordering::Acquire) & REVOKED != 0
}

/// Whether all stores that this thread has made are part of the export, even if it is revoked from now on.
pub(crate) fn stores_arrived(word: &impl StatusWord) -> bool {
    fence(Ordering::SeqCst);
    !is_revoked(word)
}

/// The status after an atomic update that this thread has just made with sequential consistency. Without [`REVOKED`] the update is part of
/// the export, as [`stores_arrived`] says of stores. On x86-64 the update was the fence.
#[inline(always)]
pub(crate) fn status_after_update(word: &impl StatusWord) -> u32 {
    if !cfg!(target_arch = "x86_64") {
        fence(Ordering::SeqCst);
    }
    word.load(Ordering::Acquire)
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    type Word = loom::sync::atomic::AtomicU32;

    impl StatusWord for Word {
        fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
            Word::fetch_or(self, bits, order)
        }
        fn load(&self, order: Ordering) -> u32 {
            Word::load(self, order)
        }
    }

    /// The status, and a word of the export. Copies and stores of data have no order of their own.
    struct Export {
        status: Word,
        data: Word,
    }

    /// An importer stores and checks by `arrived`, while the exporter revokes and copies.
    fn race(arrived: impl Fn(&Word) -> bool + Copy + Send + Sync + 'static) {
        loom::model(move || {
            let export = Arc::new(Export { status: Word::new(0), data: Word::new(0) });
            let theirs = Arc::clone(&export);
            let importer = thread::spawn(move || {
                theirs.data.store(7, Ordering::Relaxed);
                arrived(&theirs.status)
            });
            revoke(&export.status);
            let copied = export.data.load(Ordering::Relaxed);
            let arrived = importer.join().unwrap();
            drop(export);
            if arrived && copied != 7 {
                panic!("a store is lost unseen");
            }
        });
    }

    #[test]
    fn loom_a_store_is_copied_or_its_importer_sees_the_revocation() {
        race(stores_arrived);
    }

    /// A check before a store says nothing of the stores before.
    #[test]
    #[should_panic(expected = "a store is lost unseen")]
    fn loom_finds_the_store_that_is_lost_without_a_fence() {
        race(|word| !is_revoked(word));
    }
}
