//! A process's places in the jobs of its servers: one for each server, which all its clients share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mapwire::meeting::{DoorName, NamedStore, visit, visit_far};
use mapwire::rpc::{Caller, Rpc};
use mapwire::{Node, NodeConfig};

use crate::abi::Status;
use crate::failure::Failure;
use crate::forks::generation;
use crate::names::Served;
use crate::settings;

/// The server's rank in its job.
const SERVER: usize = 0;

/// A place in a server's job.
#[derive(Debug)]
pub(crate) struct Session {
    rpc: Rpc,
}

/// The process, the door, and the host if it is another one.
type Key = (u32, DoorName, Option<String>);

static SESSIONS: Mutex<BTreeMap<Key, Weak<Session>>> = Mutex::new(BTreeMap::new());

fn sessions() -> MutexGuard<'static, BTreeMap<Key, Weak<Session>>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// The way to a version of a program that a process of one of these users serves. Any version's will do where the one that was asked for
    /// is not served: its server then says which it has.
    pub(crate) fn open(
        served: Served,
        users: &[u32],
        wait: Duration,
    ) -> Result<(Arc<Self>, Caller), Failure> {
        let mut nobody = Failure::of(Status::PROG_NOT_REGISTERED, 0);
        for door in [served.door(), served.door_of_program()] {
            let Some(door) = door else { continue };
            match Self::at(&door, served, users, wait) {
                Err(failure) if failure.is_nobody() => nobody = failure,
                outcome => return outcome,
            }
        }
        Err(nobody)
    }

    fn at(
        door: &DoorName,
        served: Served,
        users: &[u32],
        wait: Duration,
    ) -> Result<(Arc<Self>, Caller), Failure> {
        Self::known_or((generation(), door.clone(), None), served, wait, |config| {
            let visit = visit(door, users, config, wait);
            visit.map(|visit| Some(visit.node))
        })
    }

    /// The same on another host, by the store of names that `MAPWIRE_NAMES` says.
    pub(crate) fn open_far(
        served: Served,
        host: &str,
        wait: Duration,
    ) -> Result<(Arc<Self>, Caller), Failure> {
        let store = NamedStore::from_env().map_err(|error| Failure::of_meeting(&error))?;
        let store = store.ok_or(Failure::of(Status::SYSTEM_ERROR, libc::EHOSTUNREACH))?;
        let mut nobody = Failure::of(Status::PROG_NOT_REGISTERED, 0);
        for door in [served.door(), served.door_of_program()] {
            let Some(door) = door else { continue };
            let key = (generation(), door.clone(), Some(host.to_owned()));
            let found = Self::known_or(key, served, wait, |config| {
                visit_far(&store, &door, host, config, wait)
            });
            match found {
                Err(failure) if failure.is_nobody() => nobody = failure,
                outcome => return outcome,
            }
        }
        Err(nobody)
    }

    /// A place that this process has already, or the one that `join` gives; `None`: nobody serves there.
    fn known_or(
        key: Key,
        served: Served,
        wait: Duration,
        join: impl FnOnce(NodeConfig) -> Result<Option<Node>, mapwire::Error>,
    ) -> Result<(Arc<Self>, Caller), Failure> {
        let known = sessions().get(&key).and_then(Weak::upgrade);
        if let Some(session) = known {
            // A server that has ended since may have a successor.
            if let Ok(caller) = session.caller(served) {
                return Ok((session, caller));
            }
        }
        let config = settings::node_config().map_err(|why| {
            crate::log::warn(&why);
            Failure::of(Status::SYSTEM_ERROR, libc::EINVAL)
        })?;
        let node = join(config).map_err(|error| Failure::of_meeting(&error))?;
        let node = node.ok_or(Failure::of(Status::PROG_NOT_REGISTERED, 0))?;
        let mut config = settings::rpc_config();
        config.timeout = Some(wait);
        let rpc = Rpc::open(&node, config).map_err(|error| Failure::of_call(&error))?;
        let session = Arc::new(Self { rpc });
        let caller = session.caller(served).map_err(|error| {
            crate::log::warn(&error.to_string());
            Failure::of(Status::SYSTEM_ERROR, libc::ECONNREFUSED)
        })?;
        let mut sessions = sessions();
        sessions.retain(|_, session| session.strong_count() > 0);
        sessions.insert(key, Arc::downgrade(&session));
        Ok((session, caller))
    }

    /// The way to another version or program of the same server.
    pub(crate) fn caller(&self, served: Served) -> Result<Caller, mapwire::rpc::Error> {
        self.rpc.caller(SERVER, served.program, served.version)
    }
}
