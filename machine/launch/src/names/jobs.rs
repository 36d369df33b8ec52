//! The jobs in a store, for users.

use std::ops::Range;

use mapwire_names::{SharedSecret, StoreAddress, open};

use super::forming::{claims, record_key};
use super::record::{JOBS, JobName, Record};
use super::signed;
use crate::LaunchError;

/// A job in a store.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: String,
    /// Its size and release, and its members; `None`: it was begun with another secret.
    pub known: Option<(u32, String, Vec<Member>)>,
}

/// A process that has ranks of a job.
#[derive(Clone, Debug)]
pub struct Member {
    pub ranks: Range<u32>,
    pub host: String,
    pub process: u32,
}

/// The jobs in the store at `address`, by their names.
///
/// # Errors
/// The store cannot be reached, or has another secret.
pub fn jobs(address: &StoreAddress, shared: &SharedSecret) -> Result<Vec<Job>, LaunchError> {
    let mut store = open(address, shared)?;
    let mut jobs = Vec::new();
    for (name, value) in signed::list_any(&mut *store, &record_key(shared), JOBS)? {
        let Ok(job_name) = name.parse::<JobName>() else {
            continue;
        };
        let record = value.and_then(|value| Record::parse(&value));
        let known = match record {
            None => None,
            Some(record) => {
                let incarnation = record.incarnation;
                let signing = incarnation.signing_key(&job_name, shared);
                let prefix = incarnation.prefix(&job_name);
                let claims = claims(&mut *store, &signing, &prefix)?;
                let members = claims.into_values().map(|claim| Member {
                    ranks: claim.ranks,
                    host: claim.host,
                    process: claim.process,
                });
                let mut members: Vec<Member> = members.collect();
                members.sort_by_key(|member| member.ranks.start);
                Some((record.size, record.release, members))
            }
        };
        jobs.push(Job { name, known });
    }
    Ok(jobs)
}
