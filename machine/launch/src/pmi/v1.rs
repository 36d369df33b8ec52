//! PMI-1: lines of `name=value` with blanks between them.

use super::dialect::Dialect;
use super::wire::{Answer, Limit, Wire};
use crate::LaunchError;

/// Longest line of a rank, in bytes, as MPICH's and Slurm's servers read them.
const MAX_COMMAND_BYTES: usize = 1023;

/// Longest name of a job that leaves room for keys and values.
const MAX_JOB_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct V1 {
    space: String,
    longest_value: usize,
}

fn number(answer: &Answer, name: &str) -> Option<i64> {
    answer.field(name)?.parse().ok()
}

/// Absent is success: not all servers say it.
fn is_success(answer: &Answer) -> bool {
    answer.field("rc").is_none_or(|rc| rc == "0")
}

/// Sends `command` and reads the answer, which must be named `name`.
fn ask(wire: &mut Wire, command: &str, name: &'static str, limit: Limit) -> Result<Answer, LaunchError> {
    wire.send(command.as_bytes(), limit)?;
    let line = wire.read_line(limit)?;
    Answer::read(wire, "PMI-1", line, |it| it.is_ascii_whitespace(), name)
}

/// Offers a version. False: the launcher speaks PMI-1 only, and expects that it is offered if it refused.
pub(super) fn offer(wire: &mut Wire, version: i64, limit: Limit) -> Result<bool, LaunchError> {
    let subversion = i64::from(version == 1);
    let command = format!("cmd=init pmi_version={version} pmi_subversion={subversion}\n");
    let answer = ask(wire, &command, "response_to_init", limit)?;
    let accepted = is_success(&answer).then(|| number(&answer, "pmi_version"));
    match accepted {
        Some(Some(accepted)) if accepted == version => Ok(true),
        // It goes on with the version it names.
        Some(Some(1)) => Ok(false),
        // It refuses, and waits for another offer.
        None if version == 2 => {
            offer(wire, 1, limit)?;
            Ok(false)
        }
        _ => wire.fail(LaunchError::Protocol { protocol: "PMI", answer: answer.excerpt(), expected: "version 1 or 2" }),
    }
}

fn refused(what: String, answer: &Answer) -> LaunchError {
    LaunchError::Refused { protocol: "PMI-1", what, reason: answer.excerpt() }
}

impl V1 {
    /// Asks for the job's name and the limits.
    pub(super) fn begin(wire: &mut Wire, limit: Limit) -> Result<Self, LaunchError> {
        let maxes = ask(wire, "cmd=get_maxes\n", "maxes", limit)?;
        let space = ask(wire, "cmd=get_my_kvsname\n", "my_kvsname", limit)?;
        let name = space.field("kvsname").unwrap_or_default().to_owned();
        if name.is_empty() || name.len() > MAX_JOB_BYTES {
            return wire.fail(refused("the name of the job".into(), &space));
        }
        let line = format!("cmd=put kvsname={name} key= value=\n").len() + 48;
        let most = (MAX_COMMAND_BYTES - line) as i64;
        let longest = number(&maxes, "vallen_max").unwrap_or(most).min(most);
        if longest < 64 || number(&maxes, "keylen_max").is_some_and(|most| most < 49) {
            return wire.fail(refused("room for keys of 48 and values of 64 characters".into(), &maxes));
        }
        Ok(Self {
            space: name,
            // One less: servers count the end of a C string.
            longest_value: longest as usize - 1,
        })
    }
}

impl Dialect for V1 {
    fn protocol(&self) -> &'static str {
        "PMI-1"
    }

    fn longest_value(&self) -> usize {
        self.longest_value
    }

    fn put(&mut self, wire: &mut Wire, key: &str, value: &str, limit: Limit) -> Result<(), LaunchError> {
        let command = format!("cmd=put kvsname={} key={key} value={value}\n", self.space);
        let answer = ask(wire, &command, "put_result", limit)?;
        if !is_success(&answer) {
            return Err(refused(format!("putting `{key}`"), &answer));
        }
        Ok(())
    }

    fn get(&mut self, wire: &mut Wire, _rank: u32, key: &str, limit: Limit) -> Result<Option<String>, LaunchError> {
        let command = format!("cmd=get kvsname={} key={key}\n", self.space);
        let answer = ask(wire, &command, "get_result", limit)?;
        Ok(is_success(&answer).then(|| answer.field("value").map(str::to_owned)).flatten())
    }

    fn fence(&mut self, wire: &mut Wire, limit: Limit) -> Result<(), LaunchError> {
        let answer = ask(wire, "cmd=barrier_in\n", "barrier_out", limit)?;
        if !is_success(&answer) {
            return wire.fail(refused("a fence of all ranks".into(), &answer));
        }
        Ok(())
    }

    fn abort(&self, code: i32, _message: &str) -> Vec<u8> {
        format!("cmd=abort exitcode={code}\n").into_bytes()
    }

    fn finish(&mut self, wire: &mut Wire, limit: Limit) -> Result<(), LaunchError> {
        ask(wire, "cmd=finalize\n", "finalize_ack", limit).map(|_| ())
    }
}
