//! Handles to objects of each kind. Each call is that of the words of one host's memory, or a call to the rank that keeps the object.
//!
//! Deadlines are of [`now_ns`](super::now_ns). Every call fails when a rank is gone or the memory is closed.

use mapwire_dsm::{Combine, NumberType, Reduce as How, Verb};
use mapwire_segment::sync as one_host;
use mapwire_segment::sync::{Number, Reduce, number_of, word_of};

use super::Backed;
use super::served::Served;
use crate::error::Result;

/// Makes a handle to a kind of object, and its methods: what they do on one host, and otherwise.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident { $(
        $(#[$method_doc:meta])*
        fn $method:ident($($argument:ident: $type:ty),*) -> $out:ty { $here:ident => $one:expr, $else:expr }
    )* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $kind<'a>(pub(super) Backed<one_host::$kind<'a>, Served<'a>>);

        impl $kind<'_> { $(
            $(#[$method_doc])*
            #[inline]
            pub fn $method(&self, $($argument: $type),*) -> Result<$out> {
                match &self.0 {
                    Backed::OneHost($here) => Ok($one),
                    Backed::Served($here) => $else,
                }
            }
        )* }
    )* };
}

kinds! {
    /// A mutex in shared memory.
    Mutex {
        /// Makes it a mutex, unlocked, whatever was there.
        fn init() -> () { it => it.init(), it.done(Verb::Init, 0) }
        /// Makes later calls errors.
        ///
        /// # Errors
        /// It is locked, or its holder has ended.
        fn destroy() -> () { it => it.destroy()?, it.done(Verb::Destroy, 0) }
        /// Locks.
        ///
        /// # Errors
        /// This thread holds it; its holder has ended; it is destroyed.
        fn lock() -> () { it => it.lock()?, it.done(Verb::Take, 0) }
        /// Locks, by `deadline_ns`; false: it is too late.
        ///
        /// # Errors
        /// As [`lock`](Self::lock).
        fn lock_until(deadline_ns: u64) -> bool {
            it => it.lock_until(deadline_ns)?, it.is_granted(Verb::Take, Some(deadline_ns))
        }
        /// Locks, if it is free.
        ///
        /// # Errors
        /// Its holder has ended, which on one host is found out within about a tenth of a second; it is destroyed.
        fn try_lock() -> bool { it => it.try_lock()?, it.is_granted(Verb::Try, None) }
        /// Unlocks.
        ///
        /// # Errors
        /// This thread does not hold it.
        fn unlock() -> () { it => it.unlock()?, it.done(Verb::Give, 0) }
    }

    /// A reader-writer lock in shared memory. Neither readers nor writers starve: who cannot have it at once waits in one order.
    RwLock {
        /// Makes it a lock, unlocked, whatever was there.
        fn init() -> () { it => it.init(), it.done(Verb::Init, 0) }
        /// Makes later calls errors.
        ///
        /// # Errors
        /// It is locked, or its holder has ended.
        fn destroy() -> () { it => it.destroy()?, it.done(Verb::Destroy, 0) }
        /// Locks for reading.
        ///
        /// # Errors
        /// This thread holds it already and a writer waits; a holder has ended; it is destroyed.
        fn read() -> () { it => it.read()?, it.done(Verb::Share, 0) }
        /// As [`read`](Self::read), by `deadline_ns`; false: it is too late.
        ///
        /// # Errors
        /// As [`read`](Self::read).
        fn read_until(deadline_ns: u64) -> bool {
            it => it.read_until(deadline_ns)?, it.is_granted(Verb::Share, Some(deadline_ns))
        }
        /// Locks for reading, if no writer has or wants it.
        ///
        /// # Errors
        /// It is destroyed.
        fn try_read() -> bool { it => it.try_read()?, it.is_granted(Verb::TryShare, None) }
        /// Locks for writing.
        ///
        /// # Errors
        /// This thread holds it; a holder has ended; it is destroyed.
        fn write() -> () { it => it.write()?, it.done(Verb::Take, 0) }
        /// As [`write`](Self::write), by `deadline_ns`; false: it is too late.
        ///
        /// # Errors
        /// As [`write`](Self::write).
        fn write_until(deadline_ns: u64) -> bool {
            it => it.write_until(deadline_ns)?, it.is_granted(Verb::Take, Some(deadline_ns))
        }
        /// Locks for writing, if nobody holds it.
        ///
        /// # Errors
        /// The writer has ended, which on one host is found out within about a tenth of a second; it is destroyed.
        fn try_write() -> bool { it => it.try_write()?, it.is_granted(Verb::Try, None) }
        /// Unlocks what this thread has locked, for reading or writing.
        ///
        /// # Errors
        /// This thread does not hold it.
        fn unlock() -> () { it => it.unlock()?, it.done(Verb::Give, 0) }
    }

    /// A condition variable in shared memory.
    Condition {
        /// Makes it a condition variable on which nobody waits, whatever was there.
        fn init() -> () { it => it.init(), it.done(Verb::Init, 0) }
        /// Makes calls errors from now on. Nobody waits.
        fn destroy() -> () { it => it.destroy(), it.done(Verb::Destroy, 0) }
        /// Wakes one that waits.
        ///
        /// # Errors
        /// It is destroyed.
        fn signal() -> () { it => it.signal()?, it.done(Verb::Give, 1) }
        /// Wakes all that wait.
        ///
        /// # Errors
        /// It is destroyed.
        fn broadcast() -> () { it => it.broadcast()?, it.done(Verb::Give, u64::MAX) }
    }

    /// A counting semaphore in shared memory.
    Semaphore {
        /// Makes it a semaphore of this value, whatever was there.
        ///
        /// # Errors
        /// A value above [`SEMAPHORE_MAX`](super::SEMAPHORE_MAX).
        fn init(value: u32) -> () { it => it.init(value)?, it.done(Verb::Init, value.into()) }
        /// Makes calls errors from now on. Nobody waits.
        fn destroy() -> () { it => it.destroy(), it.done(Verb::Destroy, 0) }
        /// The value now.
        ///
        /// # Errors
        /// It is destroyed or damaged.
        fn value() -> u32 { it => it.value()?, Ok(it.value(Verb::Read, 0)? as u32) }
        /// Waits until the value is not 0, and takes 1 from it.
        ///
        /// # Errors
        /// It is destroyed or damaged.
        fn take() -> () { it => it.take()?, it.done(Verb::Take, 0) }
        /// As [`take`](Self::take), by `deadline_ns`; false: it is too late.
        ///
        /// # Errors
        /// As [`take`](Self::take).
        fn take_until(deadline_ns: u64) -> bool {
            it => it.take_until(deadline_ns)?, it.is_granted(Verb::Take, Some(deadline_ns))
        }
        /// Takes 1 from the value, if it is not 0.
        ///
        /// # Errors
        /// It is destroyed or damaged.
        fn try_take() -> bool { it => it.try_take()?, it.is_granted(Verb::Try, None) }
        /// Adds `count` to the value, and wakes as many that wait.
        ///
        /// # Errors
        /// It would be too high; it is destroyed or damaged.
        fn post(count: u32) -> () { it => it.post(count)?, it.done(Verb::Give, count.into()) }
    }

    /// A number in shared memory that others wait for.
    Flag {
        /// Makes it a flag of value 0, whatever was there.
        fn init() -> () { it => it.init(), it.done(Verb::Init, 0) }
        /// Makes waits errors from now on.
        fn destroy() -> () { it => it.destroy(), it.done(Verb::Destroy, 0) }
        /// Its value, and what was stored before it was set.
        fn value() -> u64 { it => it.value(), it.value(Verb::Read, 0) }
        /// Sets the value, and wakes those that wait for it.
        fn set(value: u64) -> () { it => it.set(value), it.done(Verb::Set, value) }
        /// Adds to the value, and wakes those that wait for it. Returns the value before.
        fn add(by: u64) -> u64 { it => it.add(by), it.value(Verb::Give, by) }
        /// Waits until the value is `least` or more, and returns it.
        ///
        /// # Errors
        /// It is destroyed.
        fn wait(least: u64) -> u64 { it => it.wait(least)?, it.value(Verb::Take, least) }
        /// As [`wait`](Self::wait), by `deadline_ns`; `None`: it is too late.
        ///
        /// # Errors
        /// As [`wait`](Self::wait).
        fn wait_until(least: u64, deadline_ns: u64) -> Option<u64> {
            it => it.wait_until(least, deadline_ns)?, it.call(Verb::Take, least, Some(deadline_ns))
        }
    }

    /// A barrier of a number of threads, in shared memory.
    Barrier {
        /// Makes it a barrier of `count` threads, whatever was there.
        ///
        /// # Errors
        /// A count of 0.
        fn init(count: u32) -> () { it => it.init(count)?, it.init_meeting(count) }
        /// Makes calls errors from now on. Nobody waits.
        fn destroy() -> () { it => it.destroy(), it.done(Verb::Destroy, 0) }
        /// Waits until as many threads have arrived as it counts, of any number that use it. True in the last of them.
        ///
        /// # Errors
        /// It was not initialised, or is destroyed.
        fn wait() -> bool { it => it.wait()?, Ok(it.value(Verb::Take, 0)? == 1) }
    }

    /// A barrier whose threads each bring a value, in shared memory.
    Reduction {
        /// Makes it a reduction over `count` threads, whatever was there.
        ///
        /// # Errors
        /// A count of 0.
        fn init(count: u32) -> () { it => it.init(count)?, it.init_meeting(count) }
        /// Makes calls errors from now on. Nobody waits.
        fn destroy() -> () { it => it.destroy(), it.done(Verb::Destroy, 0) }
    }

    /// What one thread does and all others wait for, in shared memory.
    Once {
        /// Makes it not done, whatever was there.
        fn init() -> () { it => it.init(), it.done(Verb::Init, 0) }
        /// Whether it is done; then all that was stored by it is visible.
        fn is_done() -> bool { it => it.is_done(), Ok(it.value(Verb::Read, 0)? == 1) }
        /// Begins it; false: another thread has done it, perhaps while this one waited. If true, do it and call [`end`](Self::end).
        ///
        /// # Errors
        /// This thread does it now; the thread that did it has ended.
        fn begin() -> bool { it => it.begin()?, Ok(it.value(Verb::Take, 0)? == 1) }
        /// Ends what [`begin`](Self::begin) began: done, or to be begun again by the next.
        ///
        /// # Errors
        /// This thread has not begun it.
        fn end(is_done: bool) -> () { it => it.end(is_done)?, it.done(Verb::Give, is_done.into()) }
    }
}

impl Condition<'_> {
    /// Unlocks `mutex`, waits for a signal, and locks it again. May return without a signal, so look whether what is waited for is true.
    ///
    /// # Errors
    /// This thread does not hold the mutex, or it lies in another memory; whoever held it meanwhile has ended.
    pub fn wait(&self, mutex: &Mutex<'_>) -> Result<()> {
        self.wait_by(mutex, None).map(drop)
    }

    /// As [`wait`](Self::wait), by `deadline_ns`; false: there was no signal by then.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_until(&self, mutex: &Mutex<'_>, deadline_ns: u64) -> Result<bool> {
        self.wait_by(mutex, Some(deadline_ns))
    }

    fn wait_by(&self, mutex: &Mutex<'_>, deadline_ns: Option<u64>) -> Result<bool> {
        match (&self.0, &mutex.0, deadline_ns) {
            (Backed::OneHost(it), Backed::OneHost(mutex), None) => Ok(it.wait(mutex).map(|()| true)?),
            (Backed::OneHost(it), Backed::OneHost(mutex), Some(at)) => Ok(it.wait_until(mutex, at)?),
            (Backed::Served(it), Backed::Served(mutex), _) => it.wait(mutex, deadline_ns),
            (_, Backed::Served(mutex), _) => Err(one_host::SyncError::Misplaced { object: mutex.name() }.into()),
            (Backed::Served(it), ..) => Err(one_host::SyncError::Misplaced { object: it.name() }.into()),
        }
    }
}

impl Reduction<'_> {
    /// Brings a value, waits until as many threads have done so as it counts, and returns what is made of all.
    ///
    /// # Errors
    /// Others ask for another reduction in this round; it was not initialised, or is destroyed.
    pub fn reduce<T: Number>(&self, what: Reduce, value: T) -> Result<T> {
        let it = match &self.0 {
            Backed::OneHost(it) => return Ok(it.reduce(what, value)?),
            Backed::Served(it) => it,
        };
        let (number_type, word) = word_of(value);
        let how = match what {
            Reduce::Sum => How::Sum,
            Reduce::Min => How::Min,
            Reduce::Max => How::Max,
        };
        let of = match number_type {
            1 => NumberType::U64,
            2 => NumberType::I64,
            _ => NumberType::F64,
        };
        Ok(number_of(it.value(Verb::Reduce(Combine { how, of }), word)?))
    }
}
