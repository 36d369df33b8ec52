//! Calls of objects and their answers, also as bytes.

use core::cmp::Ordering;
use core::fmt;

use crate::{Rank, Thread};

/// A kind of synchronisation object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObjectKind {
    Mutex,
    RwLock,
    Condition,
    Semaphore,
    Flag,
    Barrier,
    Once,
    Reduction,
    /// The lock of a queue that lies in ordinary shared memory.
    Queue,
}

impl ObjectKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Mutex,
        Self::RwLock,
        Self::Condition,
        Self::Semaphore,
        Self::Flag,
        Self::Barrier,
        Self::Once,
        Self::Reduction,
        Self::Queue,
    ];

    /// Its name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::RwLock => "reader-writer lock",
            Self::Condition => "condition variable",
            Self::Semaphore => "semaphore",
            Self::Flag => "flag",
            Self::Barrier => "barrier",
            Self::Once => "once",
            Self::Reduction => "reduction",
            Self::Queue => "queue",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A reduction of 64-bit numbers of one type, one from each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combine {
    pub how: Reduce,
    pub of: NumberType,
}

/// A way to make one number of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// Integers wrap.
    Sum,
    Min,
    Max,
}

/// Type of the numbers. Floating-point numbers are in IEEE's total order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberType {
    U64,
    I64,
    F64,
}

impl Combine {
    const ALL: [Self; 9] = {
        use {NumberType::*, Reduce::*};
        let mut all = [Self { how: Sum, of: U64 }; 9];
        let (hows, types) = ([Sum, Min, Max], [U64, I64, F64]);
        let mut code = 0;
        while code < 9 {
            all[code] = Self { how: hows[code / 3], of: types[code % 3] };
            code += 1;
        }
        all
    };

    pub(super) fn code(self) -> u8 {
        self.how as u8 * 3 + self.of as u8
    }

    pub(super) fn of(self, a: u64, b: u64) -> u64 {
        let order = match self.of {
            NumberType::U64 => a.cmp(&b),
            NumberType::I64 => (a as i64).cmp(&(b as i64)),
            NumberType::F64 => f64::from_bits(a).total_cmp(&f64::from_bits(b)),
        };
        match (self.how, self.of) {
            (Reduce::Sum, NumberType::F64) => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
            (Reduce::Sum, _) => a.wrapping_add(b),
            (Reduce::Min, _) => {
                if order == Ordering::Less {
                    a
                } else {
                    b
                }
            }
            (Reduce::Max, _) => {
                if order == Ordering::Greater {
                    a
                } else {
                    b
                }
            }
        }
    }
}

/// An operation on an object. It ends with [`Outcome::Value`](crate::Outcome::Value), which is 0 unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Makes it an object of the kind, whatever was there; the argument is a semaphore's value, or how many threads meet at a barrier or
    /// reduction.
    Init,
    /// Makes later calls errors.
    Destroy,
    /// The value of a semaphore or flag; of a once, 1 when it is done.
    Read,
    /// Waits for its turn, and locks, takes 1 from a semaphore, begins a once (1: the thread is to do it), passes a condition for which it
    /// has enlisted; waits until a flag's value is at least the argument, and gives it; waits until all have arrived at a barrier (1 in the
    /// last).
    Take,
    /// As `Take`, for locks and semaphores, or ends at once with [`Outcome::NotNow`](crate::Outcome::NotNow).
    Try,
    /// Locks for reading, with others that read.
    Share,
    /// As `Share`, or ends at once with [`Outcome::NotNow`](crate::Outcome::NotNow).
    TryShare,
    /// Unlocks; adds the argument to a semaphore, or to a flag, whose value before it gives; wakes so many that wait on a condition; ends a
    /// once, which then is done unless the argument is 0.
    Give,
    /// Sets a flag to the argument, and gives its value before.
    Set,
    /// Enters the queue of a condition without waiting: before the mutex is unlocked.
    Enlist,
    /// Leaves the queue of a condition.
    Leave,
    /// Brings the argument to a reduction, and waits until all have; gives what is made of them.
    Reduce(Combine),
}

/// The code of the first reduction.
const REDUCTIONS: u8 = 16;

impl Verb {
    const PLAIN: [Self; 11] = [
        Self::Init,
        Self::Destroy,
        Self::Read,
        Self::Take,
        Self::Try,
        Self::Share,
        Self::TryShare,
        Self::Give,
        Self::Set,
        Self::Enlist,
        Self::Leave,
    ];

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Reduce(combine) => REDUCTIONS + combine.code(),
            plain => Self::PLAIN.iter().position(|verb| *verb == plain).unwrap_or_default() as u8,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        match code.checked_sub(REDUCTIONS) {
            None => Self::PLAIN.get(usize::from(code)).copied(),
            Some(code) => Combine::ALL.get(usize::from(code)).copied().map(Self::Reduce),
        }
    }
}

/// A call of an object. Objects are named by a number, the same in all ranks, other than 0: their address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectCall {
    pub object: u64,
    pub kind: ObjectKind,
    pub verb: Verb,
    pub argument: u64,
}

impl ObjectCall {
    /// The call in a message, if there is such.
    pub(crate) fn of_message(object: u64, kind: u8, verb: u8, argument: u64) -> Option<Self> {
        let (kind, verb) = (*ObjectKind::ALL.get(usize::from(kind))?, Verb::of_code(verb)?);
        Some(Self { object, kind, verb, argument }).filter(Self::is_legal)
    }

    /// True if objects of this kind have this operation.
    pub(super) fn is_legal(&self) -> bool {
        use ObjectKind::*;
        let kinds: &[ObjectKind] = match self.verb {
            Verb::Init | Verb::Destroy => &ObjectKind::ALL,
            Verb::Read => &[Semaphore, Flag, Once],
            Verb::Take => &[Mutex, RwLock, Condition, Semaphore, Flag, Barrier, Once, Queue],
            Verb::Try => &[Mutex, RwLock, Semaphore],
            Verb::Share | Verb::TryShare => &[RwLock],
            Verb::Give => &[Mutex, RwLock, Condition, Semaphore, Flag, Once, Queue],
            Verb::Set => &[Flag],
            Verb::Enlist | Verb::Leave => &[Condition],
            Verb::Reduce(_) => &[Reduction],
        };
        self.object != 0 && kinds.contains(&self.kind)
    }

    /// Whether what the thread has done before is visible to those that this call lets go on.
    pub(crate) fn releases(&self) -> bool {
        match self.verb {
            Verb::Give | Verb::Set | Verb::Reduce(_) | Verb::Init => true,
            Verb::Take => self.kind == ObjectKind::Barrier,
            _ => false,
        }
    }
}

/// Whether a call with these codes releases.
pub(crate) fn releases(kind: u8, verb: u8) -> bool {
    ObjectCall::of_message(1, kind, verb, 0).is_some_and(|call| call.releases())
}

/// Why a call of an object failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Objects of that kind do not do that.
    NoSuchCall,
    /// This thread holds it, and would wait for itself.
    Held,
    /// This thread does not hold it.
    NotHeld {
        /// The holder; `None` if there are several.
        holder: Option<(Rank, Thread)>,
    },
    /// It is destroyed.
    Destroyed,
    /// It is in use as an object of that kind.
    OtherKind(ObjectKind),
    /// It is locked, and cannot be destroyed.
    InUse,
    /// It would exceed its highest value.
    TooHigh,
    /// It was never told how many threads meet.
    Uninitialised,
    /// Other threads of the round ask for another reduction.
    OtherReduction,
    /// Its home has so many objects in use, and no more.
    TooMany {
        /// The limit.
        objects: u32,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchCall => f.write_str("does not do that"),
            Self::Held => f.write_str("is held by this thread already; locks do not nest"),
            Self::NotHeld { holder: None } => f.write_str("is not held by this thread: no single thread holds it"),
            Self::NotHeld { holder: Some((rank, thread)) } => {
                write!(f, "is not held by this thread: thread {thread} of rank {rank} holds it")
            }
            Self::Destroyed => f.write_str("is destroyed"),
            Self::OtherKind(kind) => write!(f, "is in use as a {kind}"),
            Self::InUse => f.write_str("is locked, and cannot be destroyed"),
            Self::TooHigh => write!(f, "would exceed {SEMAPHORE_MAX}, its highest value"),
            Self::Uninitialised => f.write_str("was never initialised"),
            Self::OtherReduction => f.write_str("makes another reduction in this round, or of another type"),
            Self::TooMany { objects } => {
                write!(f, "cannot be used: its home has {objects} objects in use, and no more; destroy some")
            }
        }
    }
}

/// Highest value of a semaphore.
pub const SEMAPHORE_MAX: u64 = i32::MAX as u64;

/// End of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Granted(u64),
    NotNow,
    Failed(Problem),
}

impl Answer {
    /// Result code and value.
    pub(super) fn to_message(self) -> (u8, u64) {
        match self {
            Self::Granted(value) => (0, value),
            Self::NotNow => (1, 0),
            Self::Failed(problem) => match problem {
                Problem::NoSuchCall => (2, 0),
                Problem::Held => (3, 0),
                Problem::NotHeld { holder: None } => (4, 0),
                Problem::NotHeld { holder: Some((rank, thread)) } => (5, u64::from(rank) << 16 | u64::from(thread)),
                Problem::Destroyed => (6, 0),
                Problem::OtherKind(kind) => (7, kind as u64),
                Problem::InUse => (8, 0),
                Problem::TooHigh => (9, 0),
                Problem::Uninitialised => (10, 0),
                Problem::OtherReduction => (11, 0),
                Problem::TooMany { objects } => (12, objects.into()),
            },
        }
    }

    pub(super) fn of_message(result: u8, value: u64) -> Option<Self> {
        let answer = match result {
            0 => Self::Granted(value),
            1 => Self::NotNow,
            2 => Self::Failed(Problem::NoSuchCall),
            3 => Self::Failed(Problem::Held),
            4 => Self::Failed(Problem::NotHeld { holder: None }),
            5 => Self::Failed(Problem::NotHeld { holder: Some(((value >> 16) as Rank, value as Thread)) }),
            6 => Self::Failed(Problem::Destroyed),
            7 => Self::Failed(Problem::OtherKind(*ObjectKind::ALL.get(usize::try_from(value).ok()?)?)),
            8 => Self::Failed(Problem::InUse),
            9 => Self::Failed(Problem::TooHigh),
            10 => Self::Failed(Problem::Uninitialised),
            11 => Self::Failed(Problem::OtherReduction),
            12 => Self::Failed(Problem::TooMany { objects: value as u32 }),
            _ => return None,
        };
        Some(answer).filter(|answer| answer.to_message() == (result, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_of_one_verb_or_none() {
        let verbs = (0..=u8::MAX).filter_map(|code| Some((code, Verb::of_code(code)?)));
        assert!(verbs.clone().all(|(code, verb)| verb.code() == code));
        assert_eq!(verbs.count(), 11 + 9);
        assert_eq!(ObjectCall::of_message(0, 0, 3, 0), None, "no object has the number 0");
        assert_eq!(ObjectCall::of_message(8, 0, Verb::Enlist.code(), 0), None, "a mutex has no queue to enter");
    }

    #[test]
    fn an_answer_is_read_as_it_was_written_and_nothing_else_is() {
        let problems = [
            Problem::NoSuchCall,
            Problem::Held,
            Problem::NotHeld { holder: None },
            Problem::NotHeld { holder: Some((700, 63)) },
            Problem::Destroyed,
            Problem::OtherKind(ObjectKind::Reduction),
            Problem::InUse,
            Problem::TooHigh,
            Problem::Uninitialised,
            Problem::OtherReduction,
            Problem::TooMany { objects: 9 },
        ];
        let failed = problems.map(Answer::Failed);
        for answer in [Answer::Granted(u64::MAX), Answer::NotNow].into_iter().chain(failed) {
            let (result, value) = answer.to_message();
            assert_eq!(Answer::of_message(result, value), Some(answer));
        }
        for (result, value) in [(1, 1), (3, 7), (5, 1 << 32), (7, 9), (12, 1 << 32), (13, 0)] {
            assert_eq!(Answer::of_message(result, value), None);
        }
    }

    #[test]
    fn numbers_are_combined_by_their_type() {
        let make = |how, of, a, b| Combine { how, of }.of(a, b);
        let minus = (-3_i64) as u64;
        assert_eq!(make(Reduce::Sum, NumberType::I64, minus, 5), 2);
        assert_eq!(make(Reduce::Min, NumberType::I64, minus, 5), minus);
        assert_eq!(make(Reduce::Min, NumberType::U64, minus, 5), 5);
        let [half, less] = [0.5_f64, -0.25].map(f64::to_bits);
        assert_eq!(make(Reduce::Max, NumberType::F64, half, less), half);
        assert_eq!(make(Reduce::Sum, NumberType::F64, half, less), 0.25_f64.to_bits());
    }
}
