//! Objects that a rank keeps: calls of them.

use std::sync::Arc;

use mapwire_dsm::{Error as ModelError, ObjectCall, ObjectKind, Problem, Verb};
use mapwire_segment::sync::{Object, SEMAPHORE_MAX, SyncError, Who, check_count};

use super::objects::Home;
use crate::error::{Error, Result};
use crate::shared::Protocol;
use crate::shared::error::SharedError;

/// An object that a rank keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served<'a> {
    pub(super) home: &'a Home,
    pub(super) kind: ObjectKind,
    pub(super) address: u64,
}

impl Home {
    pub(super) fn protocol(&self) -> Result<Arc<Protocol>> {
        self.protocol.upgrade().ok_or_else(|| SharedError::NotOpen.into())
    }
}

impl Served<'_> {
    pub(super) fn name(&self) -> Object {
        Object::At(self.kind.name(), self.address as usize)
    }

    /// Calls the object. `None`: that cannot be granted at once, or was not by `deadline_ns`.
    pub(super) fn call(&self, verb: Verb, argument: u64, deadline_ns: Option<u64>) -> Result<Option<u64>> {
        let call = ObjectCall { object: self.address, kind: self.kind, verb, argument };
        self.home.protocol()?.call_object(call, deadline_ns).map_err(|error| self.failed(error))
    }

    /// A call without a deadline.
    pub(super) fn value(&self, verb: Verb, argument: u64) -> Result<u64> {
        Ok(self.call(verb, argument, None)?.unwrap_or_default())
    }

    /// A call that gives nothing.
    pub(super) fn done(&self, verb: Verb, argument: u64) -> Result<()> {
        self.value(verb, argument).map(drop)
    }

    /// Whether a call was granted, at once or by a deadline.
    pub(super) fn is_granted(&self, verb: Verb, deadline_ns: Option<u64>) -> Result<bool> {
        Ok(self.call(verb, 0, deadline_ns)?.is_some())
    }

    /// Makes it an object where `count` threads meet.
    pub(super) fn init_meeting(&self, count: u32) -> Result<()> {
        check_count(self.name(), count)?;
        self.done(Verb::Init, count.into())
    }

    /// Waits on this condition with `mutex` unlocked. The thread enters the queue first, so that no signal is lost.
    pub(super) fn wait(&self, mutex: &Self, deadline_ns: Option<u64>) -> Result<bool> {
        self.done(Verb::Enlist, 0)?;
        if let Err(error) = mutex.done(Verb::Give, 0) {
            let _ = self.done(Verb::Leave, 0);
            return Err(error);
        }
        let woken = self.is_granted(Verb::Take, deadline_ns);
        mutex.done(Verb::Take, 0)?;
        woken
    }

    /// Says what the other kind of memory would.
    fn failed(&self, error: SharedError) -> Error {
        let SharedError::Model(ModelError::Object { problem, .. }) = error else { return error.into() };
        let object = self.name();
        let who = |(rank, thread): (u16, u16)| Who { rank: rank.into(), pid: 0, tid: u32::from(thread) + 1 };
        match problem {
            Problem::Held => SyncError::Held(object),
            Problem::NotHeld { holder } => SyncError::NotHeld { object, holder: holder.map(who) },
            Problem::Destroyed => SyncError::Freed(object),
            Problem::OtherKind(kind) => SyncError::OtherKind { object, kind: kind.name() },
            Problem::InUse => SyncError::InUse(object),
            Problem::TooHigh => SyncError::TooHigh { object, most: SEMAPHORE_MAX },
            Problem::Uninitialised => SyncError::Damaged(object),
            Problem::OtherReduction => SyncError::OtherReduction(object),
            Problem::TooMany { objects } => SyncError::TooManyObjects { object, objects },
            _ => return error.into(),
        }
        .into()
    }
}
