//! `mapwire names`: the jobs in a store of names.

use std::process::ExitCode;

use mapwire_launch::NamedJob;
use mapwire_launch::names::{Job, jobs};
use mapwire_names::SharedSecret;
use serde_json::json;

use crate::args::NamesArgs;
use crate::{Failure, failing};

pub(crate) fn command(args: &NamesArgs) -> Result<ExitCode, Failure> {
    let found = NamedJob::store_of(args.names.as_deref(), args.secret_file.as_deref());
    let (address, file) = found.map_err(failing(1))?;
    let shared = SharedSecret::read(&file).map_err(failing(1))?;
    let jobs = jobs(&address, &shared).map_err(failing(1))?;
    if args.json {
        jobs.iter().for_each(print_json);
        return Ok(ExitCode::SUCCESS);
    }
    if jobs.is_empty() {
        println!("no job has a name at {address}");
    }
    for job in &jobs {
        match &job.known {
            None => println!("{}: begun with another secret", job.name),
            Some((size, release, members)) => {
                let have: usize = members.iter().map(|member| member.ranks.len()).sum();
                println!("{}: {have} of {size} ranks, mapwire {release}", job.name);
                for member in members {
                    let (first, last) = (member.ranks.start, member.ranks.end - 1);
                    let ranks = if first == last { format!("rank {first}") } else { format!("ranks {first}-{last}") };
                    println!("  {ranks} on {}, process {}", member.host, member.process);
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One object a member; one alone for a job of another secret.
fn print_json(job: &Job) {
    match &job.known {
        None => println!("{}", json!({ "kind": "job", "job": job.name, "secret": "another" })),
        Some((size, release, members)) => {
            for member in members {
                let row = json!({
                    "kind": "process",
                    "job": job.name, "size": size, "release": release, "first_rank": member.ranks.start,
                    "ranks": member.ranks.len(), "host": member.host, "pid": member.process,
                });
                println!("{row}");
            }
        }
    }
}
