//! How the members of a job find together.
//!
//! The first that comes creates the job's record. Each claims the next number, with ranks that no claim before it has, so that no two
//! have the same rank. When the claims have all ranks, each member says that it is ready, and the job is formed when all have said so.
//!
//! A claim that vanishes before is of a member that died. Then the incarnation is given up: who sees it revokes the job's lease, and all
//! begin anew with another. So a member that was killed while it waited, and was started again, is not waited for in vain, and a job that
//! was killed as a whole leaves nothing that its successor could take part in.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use mapwire_names::{LEASE, LeaseId, SharedSecret, SigningKey, Store};

use super::record::{Claim, Incarnation, JobName, RELEASE, Record, host_name, ranks_text};
use super::signed;
use crate::LaunchError;

pub(super) const KEEP: Duration = Duration::from_secs(1);
/// A job that is there for longer than this, and takes no member, is alive.
const DYING: Duration = LEASE.saturating_add(Duration::from_secs(3));
/// The shortest and the longest time between two looks at the store.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];

/// What a process wants to be in a job.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: JobName,
    pub size: u32,
    /// Ranks that this process brings.
    pub count: u32,
    /// The first of them; `None`: the first that nobody has.
    pub first: Option<u32>,
    /// How long it waits for others.
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Formed {
    pub(super) incarnation: Incarnation,
    /// The claims, by their numbers.
    pub(super) claims: BTreeMap<u32, Claim>,
    /// The number of this member's.
    pub(super) own: u32,
    /// What this member's is attached to.
    pub(super) lease: LeaseId,
}

impl Formed {
    pub(super) fn ranks(&self) -> Range<u32> {
        self.claims[&self.own].ranks.clone()
    }
}

enum Attempt {
    Formed(Formed),
    /// The incarnation has ended or was given up.
    Again,
    /// The job takes no member, for this reason.
    Closed(LaunchError),
}

/// Reports a wait, and may end it.
pub(super) trait Waiting {
    /// Waits for up to `pause`. Whether to go on.
    fn pause(&mut self, pause: Duration) -> bool;
    fn tell(&mut self, missing: &str);
}

/// Joins the job, and waits until all its ranks have. `None`: `waiting` has ended it, and nothing is left in the store.
pub(super) fn form(
    store: &mut dyn Store,
    shared: &SharedSecret,
    wanted: &Wanted,
    waiting: &mut dyn Waiting,
) -> Result<Option<Formed>, LaunchError> {
    let ends = Instant::now() + wanted.timeout;
    // The incarnation that took nobody, and since when.
    let mut closed: Option<(String, Instant)> = None;
    let mut was_reached = false;
    loop {
        let begun = find(store, shared, wanted).and_then(|it| Ok((it, store.grant()?)));
        let (record, lease) = match begun {
            Ok(begun) => begun,
            // It was there, and may be again.
            Err(error) if was_reached && is_passing(&error) && Instant::now() < ends => {
                if !waiting.pause(PAUSES[1]) {
                    return Ok(None);
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        was_reached = true;
        let mut member = Member { store, shared, wanted, lease, ends };
        let attempt = member.attempt(&record, waiting);
        if !matches!(attempt, Ok(Some(Attempt::Formed(_)))) {
            // Whatever it is attached to goes at once; if the store is gone, within seconds.
            let _ = store.revoke(lease);
        }
        let attempt = match attempt {
            Err(error) if is_passing(&error) && Instant::now() < ends => Some(Attempt::Again),
            attempt => attempt?,
        };
        match attempt {
            None => return Ok(None),
            Some(Attempt::Formed(formed)) => return Ok(Some(formed)),
            Some(Attempt::Again) => {}
            Some(Attempt::Closed(error)) => {
                let id = record.incarnation.id();
                let since = match closed.take() {
                    Some((same, since)) if same == id => since,
                    _ => Instant::now(),
                };
                let now = Instant::now();
                if now >= since + DYING || now >= ends {
                    return Err(error);
                }
                closed = Some((id, since));
            }
        }
        if !waiting.pause(PAUSES[1]) {
            return Ok(None);
        }
    }
}

/// The job's record, created if absent.
fn find(store: &mut dyn Store, shared: &SharedSecret, wanted: &Wanted) -> Result<Record, LaunchError> {
    let signing = record_key(shared);
    let key = wanted.name.key();
    loop {
        match signed::get(store, &signing, &key) {
            Ok(None) => {}
            Ok(Some(value)) => {
                let forged = || LaunchError::Forged { address: store.address().to_string(), key: key.clone() };
                return Record::parse(&value).ok_or_else(forged);
            }
            Err(LaunchError::Forged { address, .. }) => {
                return Err(LaunchError::JobSecret { name: wanted.name.to_string(), address });
            }
            Err(error) => return Err(error),
        }
        let lease = store.grant()?;
        let record = Record {
            incarnation: Incarnation::new(mapwire_transport::local::random()?, lease),
            size: wanted.size,
            release: RELEASE.into(),
        };
        match signed::create(store, &signing, &key, record.to_text().as_bytes(), lease) {
            Ok(true) => return Ok(record),
            // Another was faster.
            Ok(false) => store.revoke(lease)?,
            Err(LaunchError::Store(mapwire_names::NamesError::NoLease { .. })) => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn record_key(shared: &SharedSecret) -> SigningKey {
    shared.signing_key("mapwire job records", &[])
}

/// All claims below `prefix`.
pub(super) fn claims(
    store: &mut dyn Store,
    signing: &SigningKey,
    prefix: &str,
) -> Result<BTreeMap<u32, Claim>, LaunchError> {
    let folder = format!("{prefix}claim/");
    let mut claims = BTreeMap::new();
    for (number, value) in signed::list(store, signing, &folder)? {
        let claim = number.parse().ok().zip(Claim::parse(&value));
        let (number, claim) = claim.ok_or_else(|| LaunchError::Forged {
            address: store.address().to_string(),
            key: format!("{folder}{number}"),
        })?;
        claims.insert(number, claim);
    }
    Ok(claims)
}

/// A process that tries to become a member of one incarnation.
struct Member<'a> {
    store: &'a mut dyn Store,
    shared: &'a SharedSecret,
    wanted: &'a Wanted,
    lease: LeaseId,
    ends: Instant,
}

impl Member<'_> {
    fn attempt(&mut self, record: &Record, waiting: &mut dyn Waiting) -> Result<Option<Attempt>, LaunchError> {
        let name = &self.wanted.name;
        let incarnation = &record.incarnation;
        let signing = incarnation.signing_key(name, self.shared);
        let prefix = incarnation.prefix(name);
        if let Some(error) = self.disagrees(record) {
            return Ok(Some(Attempt::Closed(error)));
        }
        let own = match self.claim(&signing, &prefix)? {
            Ok(own) => own,
            Err(attempt) => return Ok(Some(attempt)),
        };
        let mut seen: BTreeMap<u32, Claim> = BTreeMap::new();
        let mut kept = Instant::now();
        let mut is_ready = false;
        let mut pause = PAUSES[0];
        loop {
            let now = Instant::now();
            if now >= kept + KEEP {
                kept = now;
                if !self.store.keep(self.lease)? || !self.store.keep(incarnation.lease)? {
                    return Ok(Some(Attempt::Again));
                }
            }
            // Before the claims: a member that has seen this may have left since.
            if is_ready && self.store.count(&format!("{prefix}ready/"))? == seen.len() as u64 {
                return Ok(Some(Attempt::Formed(Formed {
                    incarnation: incarnation.clone(),
                    claims: seen,
                    own,
                    lease: self.lease,
                })));
            }
            let claims = claims(self.store, &signing, &prefix)?;
            let is_whole = seen.iter().all(|(number, claim)| claims.get(number) == Some(claim));
            if !is_whole || !claims.contains_key(&own) {
                // Somebody has died, or has given the incarnation up.
                self.store.revoke(incarnation.lease)?;
                return Ok(Some(Attempt::Again));
            }
            if claims.len() > seen.len() {
                pause = PAUSES[0];
            }
            seen = claims;
            let have: u32 = seen.values().map(|claim| claim.ranks.len() as u32).sum();
            if have == record.size && !is_ready {
                let key = format!("{prefix}ready/{own}");
                let text = self.lease.0.to_string();
                let lease = incarnation.lease;
                match signed::create(self.store, &signing, &key, text.as_bytes(), lease) {
                    Ok(true) => is_ready = true,
                    // The number belonged to a member that has left: the job has run.
                    Ok(false) => return Ok(Some(Attempt::Again)),
                    Err(error) if is_without_lease(&error) => return Ok(Some(Attempt::Again)),
                    Err(error) => return Err(error),
                }
                continue;
            }
            let missing = missing(record.size, seen.values().map(|claim| claim.ranks.clone()));
            if now >= self.ends {
                if seen.len() == 1 {
                    self.store.revoke(incarnation.lease)?;
                }
                return Err(LaunchError::Missing {
                    name: name.to_string(),
                    size: record.size,
                    count: missing.len(),
                    missing: ranks_text(missing),
                    after: self.wanted.timeout,
                });
            }
            waiting.tell(&ranks_text(missing));
            if !waiting.pause(pause) {
                if seen.len() == 1 {
                    self.store.revoke(incarnation.lease)?;
                }
                return Ok(None);
            }
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    fn disagrees(&self, record: &Record) -> Option<LaunchError> {
        let name = self.wanted.name.to_string();
        let ours = RELEASE;
        if record.release != ours {
            return Some(LaunchError::JobVersion { name, theirs: record.release.clone(), ours: ours.into() });
        }
        if record.size == self.wanted.size {
            return None;
        }
        Some(LaunchError::JobSize { name, theirs: record.size, ours: self.wanted.size })
    }

    /// Claims ranks, under the next number. Gives the number.
    fn claim(&mut self, signing: &SigningKey, prefix: &str) -> Result<Result<u32, Attempt>, LaunchError> {
        let name = self.wanted.name.to_string();
        loop {
            let there = claims(self.store, signing, prefix)?;
            // Claims before the ready ones: a job that was ready when it was looked at last was full.
            let is_formed = self.store.count(&format!("{prefix}ready/"))? > 0;
            let taken: Vec<_> = there.values().map(|claim| claim.ranks.clone()).collect();
            let ranks = match choose(self.wanted, &taken) {
                Some(ranks) if !is_formed => ranks,
                _ => {
                    let members = there.values();
                    let members = members.map(|claim| {
                        let ranks = ranks_text(claim.ranks.clone());
                        format!("{ranks} on {} (process {})", claim.host, claim.process)
                    });
                    let wanted = match self.wanted.first {
                        Some(first) => format!("rank {first}"),
                        None => format!("{} more", self.wanted.count),
                    };
                    return Ok(Err(Attempt::Closed(LaunchError::JobInUse {
                        name,
                        wanted,
                        members: members.collect::<Vec<_>>().join("; "),
                    })));
                }
            };
            let number = there.last_key_value().map_or(0, |(number, _)| number + 1);
            let claim = Claim { ranks, host: host_name(), process: std::process::id(), lease: self.lease };
            let key = format!("{prefix}claim/{number}");
            let text = claim.to_text();
            match signed::create(self.store, signing, &key, text.as_bytes(), self.lease) {
                Ok(true) => return Ok(Ok(number)),
                Ok(false) => {}
                Err(error) if is_without_lease(&error) => return Ok(Err(Attempt::Again)),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the store may answer another time.
fn is_passing(error: &LaunchError) -> bool {
    matches!(error, LaunchError::Store(mapwire_names::NamesError::Unreachable { .. }))
}

fn is_without_lease(error: &LaunchError) -> bool {
    matches!(error, LaunchError::Store(mapwire_names::NamesError::NoLease { .. }))
}

/// The ranks that a process gets which wants them where others are taken.
fn choose(wanted: &Wanted, taken: &[Range<u32>]) -> Option<Range<u32>> {
    let is_free = |first: &u32| {
        let end = first + wanted.count;
        let is_apart = |it: &Range<u32>| it.end <= *first || end <= it.start;
        end <= wanted.size && taken.iter().all(is_apart)
    };
    let first = match wanted.first {
        Some(first) => Some(first).filter(is_free),
        None => (0..wanted.size).find(is_free),
    };
    first.map(|first| first..first + wanted.count)
}

pub(super) fn missing(size: u32, have: impl Iterator<Item = Range<u32>>) -> Vec<u32> {
    let have: Vec<_> = have.collect();
    let is_there = |rank: &u32| have.iter().any(|ranks| ranks.contains(rank));
    (0..size).filter(|rank| !is_there(rank)).collect()
}
