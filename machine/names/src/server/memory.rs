//! The server's state: values and leases. No clock or socket: time is a parameter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Instant;

use crate::protocol::{Limit, PAGE_BYTES, Request, Response};
use crate::{LEASE, LeaseId};

/// Most leases of all clients.
const MAX_LEASES: usize = 1 << 14;
/// Most current leases granted to one connection.
const MAX_CLIENT_LEASES: usize = 64;
/// Most values of one lease: those of a job of 4,096 ranks fit.
const MAX_LEASE_VALUES: usize = 1 << 16;
/// Most bytes of keys and values of one lease.
const MAX_LEASE_BYTES: usize = 64 << 20;
/// Most bytes of keys and values of all leases.
const MAX_BYTES: usize = 256 << 20;
/// Approximate bytes of an entry besides its key and value.
const ENTRY_BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientId(pub(super) u64);

#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: BTreeMap<String, Vec<u8>>,
    leases: HashMap<LeaseId, Lease>,
    granted: HashMap<ClientId, usize>,
    bytes: usize,
}

/// A lease and what is attached to it.
#[derive(Debug)]
struct Lease {
    ends: Instant,
    client: ClientId,
    keys: BTreeSet<String>,
    bytes: usize,
}

impl Memory {
    /// Carries out a request of `client` at `now`. `id` is an unused number for a lease, in case one is granted.
    pub(super) fn handle(&mut self, client: ClientId, request: Request, id: LeaseId, now: Instant) -> Response {
        match request {
            Request::Grant => self.grant(client, id, now),
            Request::Keep(lease) => match self.leases.get_mut(&lease) {
                Some(held) if held.ends > now => {
                    held.ends = now + LEASE;
                    Response::Done(true)
                }
                _ => Response::Done(false),
            },
            Request::Revoke(lease) => {
                self.end(lease);
                Response::Done(true)
            }
            Request::Create { lease, key, value } => self.create(lease, key, value, now),
            Request::Get(key) => Response::Value(self.entries.get(&key).cloned()),
            Request::List { prefix, after } => self.list(&prefix, after),
            Request::Count(prefix) => Response::Count(self.with(&prefix).count() as u64),
        }
    }

    fn grant(&mut self, client: ClientId, id: LeaseId, now: Instant) -> Response {
        let granted = self.granted.get(&client).copied().unwrap_or(0);
        if granted >= MAX_CLIENT_LEASES {
            return Response::Full(Limit::ClientLeases);
        }
        if self.leases.len() >= MAX_LEASES {
            return Response::Full(Limit::Leases);
        }
        self.granted.insert(client, granted + 1);
        let held = Lease { ends: now + LEASE, client, keys: BTreeSet::new(), bytes: 0 };
        self.leases.insert(id, held);
        Response::Granted(id)
    }

    fn create(&mut self, lease: LeaseId, key: String, value: Vec<u8>, now: Instant) -> Response {
        if let Some(there) = self.entries.get(&key) {
            return Response::Done(*there == value);
        }
        let Some(held) = self.leases.get_mut(&lease).filter(|held| held.ends > now) else {
            return Response::NoLease;
        };
        let bytes = ENTRY_BYTES + 2 * key.len() + value.len();
        if held.keys.len() >= MAX_LEASE_VALUES || held.bytes + bytes > MAX_LEASE_BYTES {
            return Response::Full(Limit::Lease);
        }
        if self.bytes + bytes > MAX_BYTES {
            return Response::Full(Limit::Bytes);
        }
        held.bytes += bytes;
        self.bytes += bytes;
        held.keys.insert(key.clone());
        self.entries.insert(key, value);
        Response::Done(true)
    }

    /// Entries whose keys begin with `prefix`, ascending.
    fn with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Vec<u8>)> {
        let from = Bound::Included(prefix);
        let range = self.entries.range::<str, _>((from, Bound::Unbounded));
        range.take_while(move |(key, _)| key.starts_with(prefix))
    }

    fn list(&self, prefix: &str, after: String) -> Response {
        let from = if after.as_str() < prefix { Bound::Included(prefix) } else { Bound::Excluded(after.as_str()) };
        let range = self.entries.range::<str, _>((from, Bound::Unbounded));
        let mut found = range.take_while(|(key, _)| key.starts_with(prefix));
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (key, value) in found.by_ref() {
            bytes += key.len() + value.len() + 8;
            entries.push((key.clone(), value.clone()));
            if bytes > PAGE_BYTES {
                break;
            }
        }
        let more = found.next().is_some();
        Response::Entries { entries, more }
    }

    pub(super) fn has(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease)
    }

    /// Ends the leases that have expired.
    pub(super) fn handle_time(&mut self, now: Instant) {
        let over = self.leases.iter().filter(|(_, held)| held.ends <= now);
        let over: Vec<LeaseId> = over.map(|(lease, _)| *lease).collect();
        for lease in over {
            self.end(lease);
        }
    }

    fn end(&mut self, lease: LeaseId) {
        let Some(held) = self.leases.remove(&lease) else {
            return;
        };
        for key in &held.keys {
            self.entries.remove(key);
        }
        self.bytes -= held.bytes;
        if let Some(granted) = self.granted.get_mut(&held.client) {
            *granted -= 1;
            if *granted == 0 {
                self.granted.remove(&held.client);
            }
        }
    }

    /// Number of values, number of leases, and bytes of the values.
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.entries.len(), self.leases.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::store::MAX_VALUE_BYTES;

    struct World {
        memory: Memory,
        now: Instant,
        next: u64,
    }

    impl World {
        fn new() -> Self {
            Self { memory: Memory::default(), now: Instant::now(), next: 0 }
        }

        fn ask_as(&mut self, client: u64, request: Request) -> Response {
            self.next += 1;
            let id = LeaseId(self.next);
            self.memory.handle(ClientId(client), request, id, self.now)
        }

        fn ask(&mut self, request: Request) -> Response {
            self.ask_as(0, request)
        }

        fn grant(&mut self) -> LeaseId {
            match self.ask(Request::Grant) {
                Response::Granted(lease) => lease,
                other => panic!("{other:?}"),
            }
        }

        fn create(&mut self, key: &str, value: &str, lease: LeaseId) -> Response {
            let (key, value) = (key.to_owned(), value.into());
            self.ask(Request::Create { lease, key, value })
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
            self.memory.handle_time(self.now);
        }
    }

    #[test]
    fn a_key_is_created_once_and_goes_with_its_lease() {
        let mut world = World::new();
        let (a, b) = (world.grant(), world.grant());
        assert_eq!(world.create("k", "1", a), Response::Done(true));
        assert_eq!(world.create("k", "2", b), Response::Done(false));
        assert_eq!(world.create("k", "1", b), Response::Done(true), "repeated");
        world.ask(Request::Revoke(b));
        let value = Response::Value(Some(b"1".to_vec()));
        assert_eq!(world.ask(Request::Get("k".into())), value, "it is of a");
        world.ask(Request::Revoke(a));
        assert_eq!(world.ask(Request::Get("k".into())), Response::Value(None));
        assert_eq!(world.memory.sizes(), (0, 0, 0));
        assert!(world.memory.granted.is_empty());
    }

    #[test]
    fn a_lease_that_nobody_keeps_ends_and_one_that_is_kept_does_not() {
        let mut world = World::new();
        let (kept, left) = (world.grant(), world.grant());
        world.create("kept", "", kept);
        world.create("left", "", left);
        world.pass(LEASE - Duration::from_millis(1));
        assert_eq!(world.ask(Request::Keep(kept)), Response::Done(true));
        world.now += Duration::from_millis(1);
        assert_eq!(world.ask(Request::Keep(left)), Response::Done(false));
        assert_eq!(world.create("late", "", left), Response::NoLease);
        world.pass(Duration::ZERO);
        assert_eq!(world.ask(Request::Count(String::new())), Response::Count(1));
        world.pass(LEASE);
        assert_eq!(world.memory.sizes(), (0, 0, 0));
    }

    #[test]
    fn lists_come_in_pages_that_together_hold_each_entry_once() {
        let mut world = World::new();
        let lease = world.grant();
        let long = "v".repeat(PAGE_BYTES / 3);
        let keys: Vec<String> = (0..10).map(|at| format!("p/{at}")).collect();
        for key in keys.iter().map(String::as_str).chain(["o", "p", "q"]) {
            world.create(key, &long, lease);
        }
        let (mut found, mut after, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let prefix = "p/".to_owned();
            let response = world.ask(Request::List { prefix, after });
            assert!(response.emit().len() <= crate::protocol::MAX_RESPONSE_BYTES);
            let Response::Entries { entries, more } = response else {
                panic!();
            };
            pages += 1;
            found.extend(entries.into_iter().map(|(key, _)| key));
            if !more {
                break;
            }
            after = found.last().unwrap().clone();
        }
        assert_eq!(found, keys);
        assert!(pages > 2, "{pages}");
        assert_eq!(world.ask(Request::Count("p/".into())), Response::Count(10));
    }

    #[test]
    fn a_client_gets_so_many_leases_and_a_lease_so_many_bytes() {
        let mut world = World::new();
        let lease = world.grant();
        for _ in 1..MAX_CLIENT_LEASES {
            world.grant();
        }
        let full = Response::Full(Limit::ClientLeases);
        assert_eq!(world.ask(Request::Grant), full);
        assert!(matches!(world.ask_as(1, Request::Grant), Response::Granted(_)));
        let mut stored = 0;
        let refused = loop {
            let (key, value) = (format!("{stored}"), vec![0; MAX_VALUE_BYTES]);
            match world.ask(Request::Create { lease, key, value }) {
                Response::Done(true) => stored += 1,
                other => break other,
            }
        };
        assert_eq!(refused, Response::Full(Limit::Lease));
        assert!(stored * MAX_VALUE_BYTES <= MAX_LEASE_BYTES);
        world.ask(Request::Revoke(lease));
        assert!(matches!(world.ask(Request::Grant), Response::Granted(_)));
    }

    proptest! {
        /// Compares it with a plain list of (key, value, lease) and (lease, end).
        #[test]
        fn it_agrees_with_a_list(steps in prop::collection::vec((0u8..7, 0u8..4, 0u8..6, 0u64..3000), 1..120)) {
            let mut world = World::new();
            let mut leases: Vec<(LeaseId, Instant)> = Vec::new();
            let mut values: Vec<(String, Vec<u8>, LeaseId)> = Vec::new();
            for (step, which, key, ms) in steps {
                let key = format!("k{key}");
                let lease = leases.get(usize::from(which)).map_or(LeaseId(u64::MAX), |(lease, _)| *lease);
                let lives = leases.iter().any(|(it, _)| *it == lease);
                match step {
                    0 => leases.push((world.grant(), world.now + LEASE)),
                    1 => {
                        prop_assert_eq!(world.ask(Request::Keep(lease)), Response::Done(lives));
                        let now = world.now;
                        leases.iter_mut().filter(|(it, _)| *it == lease).for_each(|it| it.1 = now + LEASE);
                    }
                    2 => {
                        world.ask(Request::Revoke(lease));
                        leases.retain(|(it, _)| *it != lease);
                        values.retain(|(_, _, of)| *of != lease);
                    }
                    3 | 4 => {
                        let value = vec![which];
                        let there = values.iter().find(|(it, _, _)| *it == key);
                        let expected = match there {
                            Some((_, there, _)) => Response::Done(*there == value),
                            None if lives => Response::Done(true),
                            None => Response::NoLease,
                        };
                        if there.is_none() && lives {
                            values.push((key.clone(), value.clone(), lease));
                        }
                        prop_assert_eq!(world.ask(Request::Create { lease, key, value }), expected);
                    }
                    5 => {
                        world.pass(Duration::from_millis(ms));
                        let now = world.now;
                        leases.retain(|(_, ends)| *ends > now);
                        values.retain(|(_, _, of)| leases.iter().any(|(it, _)| it == of));
                    }
                    _ => {
                        let mut expected: Vec<_> = values.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
                        expected.sort();
                        let all = Request::List { prefix: "k".into(), after: String::new() };
                        prop_assert_eq!(world.ask(all), Response::Entries { entries: expected, more: false });
                    }
                }
                prop_assert_eq!(world.memory.sizes().0, values.len());
                prop_assert_eq!(world.memory.sizes().1, leases.len());
            }
        }
    }
}
