//! Atomics and locks: the standard library's, or loom's in its models, so that loom checks the code that runs.

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(all(test, loom))]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
