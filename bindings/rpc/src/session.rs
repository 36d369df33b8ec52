//! A process's memberships in the jobs of its servers: one for each server, which all its clients share.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use mapwire::meeting::{DoorName, NamedStore, visit, visit_far};
use mapwire::rpc::{Caller, Rpc};
use mapwire::{Node, NodeConfig};
use mapwire_host::processes::Owner;

use crate::abi::Status;
use crate::failure::Failure;
use crate::forks::owner;
use crate::names::Served;
use crate::settings;

/// Rank of the server in its job.
const SERVER: usize = 0;

/// A membership in a server's job.
#[derive(Debug)]
pub(crate) struct Session {
    rpc: Rpc,
}

/// The process, the door, and the host if it is another one.
type Key = (Owner, DoorName, Option<String>);

/// State of a process's membership in a server's job.
enum Membership {
    /// A thread is joining; others wait.
    Opening,
    Open(Weak<Session>),
}

static MEMBERSHIPS: Mutex<BTreeMap<Key, Membership>> = Mutex::new(BTreeMap::new());
/// Notified of every change there.
static CHANGED: Condvar = Condvar::new();

fn memberships() -> MutexGuard<'static, BTreeMap<Key, Membership>> {
    MEMBERSHIPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to join, of one thread at a time.
struct Opening(Key);

impl Opening {
    fn end(self, session: &Arc<Session>) {
        let mut memberships = memberships();
        memberships.retain(|_, membership| match membership {
            Membership::Opening => true,
            Membership::Open(session) => session.strong_count() > 0,
        });
        memberships.insert(self.0.clone(), Membership::Open(Arc::downgrade(session)));
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut memberships = memberships();
        if let Some(Membership::Opening) = memberships.get(&self.0) {
            memberships.remove(&self.0);
        }
        drop(memberships);
        CHANGED.notify_all();
    }
}

/// The present membership, unless it is `ended`; else the right to join. Waits until `deadline` for another thread that is joining, and
/// then returns `None`.
fn enter(key: &Key, ended: Option<&Arc<Session>>, deadline: Instant) -> Option<Result<Arc<Session>, Opening>> {
    let mut memberships = memberships();
    loop {
        match memberships.get(key) {
            Some(Membership::Opening) => {
                let left = deadline.checked_duration_since(Instant::now())?;
                let waited = CHANGED.wait_timeout(memberships, left);
                memberships = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            Some(Membership::Open(session)) => {
                if let Some(session) = session.upgrade()
                    && ended.is_none_or(|ended| !Arc::ptr_eq(ended, &session))
                {
                    return Some(Ok(session));
                }
            }
            None => {}
        }
        memberships.insert(key.clone(), Membership::Opening);
        return Some(Err(Opening(key.clone())));
    }
}

impl Session {
    /// Connects to a version of a program that a process of one of these users serves.
    pub(crate) fn open(served: Served, users: &[u32], wait: Duration) -> Result<(Arc<Self>, Caller), Failure> {
        Self::at_doors(served, None, wait, |door, config, left| {
            visit(door, users, config, left).map(|visit| Some(visit.node))
        })
    }

    /// The same on another host, by the store of names in `MAPWIRE_NAMES`.
    pub(crate) fn open_far(served: Served, host: &str, wait: Duration) -> Result<(Arc<Self>, Caller), Failure> {
        let store = NamedStore::from_env().map_err(|error| Failure::of_meeting(&error))?;
        let store = store.ok_or(Failure::of(Status::SYSTEM_ERROR, libc::EHOSTUNREACH))?;
        Self::at_doors(served, Some(host), wait, |door, config, left| visit_far(&store, door, host, config, left))
    }

    /// Knocks at the door of the version. If that version is not served, any other will do: its server then says which it has.
    fn at_doors(
        served: Served,
        host: Option<&str>,
        wait: Duration,
        join: impl Fn(&DoorName, NodeConfig, Duration) -> Result<Option<Node>, mapwire::Error>,
    ) -> Result<(Arc<Self>, Caller), Failure> {
        let mut nobody = Failure::of(Status::PROG_NOT_REGISTERED, 0);
        for door in [served.door(), served.door_of_program()].into_iter().flatten() {
            let key = (owner(), door.clone(), host.map(str::to_owned));
            match Self::known_or(key, served, wait, |config, left| join(&door, config, left)) {
                Err(failure) if failure.is_nobody() => nobody = failure,
                outcome => return outcome,
            }
        }
        Err(nobody)
    }

    /// The membership that this process has already, or the result of `join` in the remaining time; `None` if nobody serves there.
    fn known_or(
        key: Key,
        served: Served,
        wait: Duration,
        join: impl FnOnce(NodeConfig, Duration) -> Result<Option<Node>, mapwire::Error>,
    ) -> Result<(Arc<Self>, Caller), Failure> {
        let deadline = Instant::now() + wait;
        let mut ended = None;
        let opening = loop {
            match enter(&key, ended.as_ref(), deadline) {
                None => return Err(Failure::of(Status::TIMED_OUT, 0)),
                Some(Err(opening)) => break opening,
                Some(Ok(session)) => match session.caller(served) {
                    Ok(caller) => return Ok((session, caller)),
                    // A server that has ended may have a successor.
                    Err(_) => ended = Some(session),
                },
            }
        };
        let wait = deadline.saturating_duration_since(Instant::now());
        let config = settings::node_config().map_err(|why| {
            crate::log::warn(&why);
            Failure::of(Status::SYSTEM_ERROR, libc::EINVAL)
        })?;
        let node = join(config, wait).map_err(|error| Failure::of_meeting(&error))?;
        let node = node.ok_or(Failure::of(Status::PROG_NOT_REGISTERED, 0))?;
        let mut config = settings::rpc_config();
        config.timeout = Some(wait);
        let rpc = Rpc::open(&node, config).map_err(|error| Failure::of_call(&error))?;
        let session = Arc::new(Self { rpc });
        let caller = session.caller(served).map_err(|error| {
            crate::log::warn(&error.to_string());
            match error {
                mapwire::rpc::Error::NoAnswer { .. } => Failure::of(Status::TIMED_OUT, 0),
                _ => Failure::of(Status::SYSTEM_ERROR, libc::ECONNREFUSED),
            }
        })?;
        opening.end(&session);
        Ok((session, caller))
    }

    /// A caller for another version or program of the same server.
    pub(crate) fn caller(&self, served: Served) -> Result<Caller, mapwire::rpc::Error> {
        self.rpc.caller(SERVER, served.program, served.version)
    }
}
