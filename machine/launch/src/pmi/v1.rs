//! PMI-1: lines of `name=value` with blanks between them.

use super::launcher::Dialect;
use super::wire::{Limit, Wire};
use crate::LaunchError;
use crate::error::excerpt;

/// Longest line of a rank, in bytes, as MPICH's and Slurm's servers read them.
const MAX_COMMAND_BYTES: usize = 1023;

/// Longest name of a job that leaves room for keys and values.
const MAX_JOB_BYTES: usize = 256;

/// PMI-1 once the launcher has accepted it.
#[derive(Debug)]
pub(super) struct V1 {
    space: String,
    longest_value: usize,
}

#[derive(Debug)]
struct Answer {
    text: String,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        let fields = self.text.split_ascii_whitespace();
        let mut pairs = fields.filter_map(|field| field.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.field(name)?.parse().ok()
    }

    /// Absent is success: not all servers say it.
    fn is_success(&self) -> bool {
        self.field("rc").is_none_or(|rc| rc == "0")
    }
}

/// Sends `command` and reads the answer, which must be named `name`.
fn ask(wire: &mut Wire, command: &str, name: &'static str, limit: Limit) -> Result<Answer, LaunchError> {
    wire.send(command.as_bytes(), limit)?;
    let line = wire.read_line(limit)?;
    let malformed = |line: &[u8]| LaunchError::Protocol { protocol: "PMI-1", answer: excerpt(line), expected: name };
    let text = match String::from_utf8(line) {
        Ok(text) if text.is_ascii() => text,
        Ok(text) => return wire.fail(malformed(text.as_bytes())),
        Err(error) => return wire.fail(malformed(error.as_bytes())),
    };
    let answer = Answer { text };
    if answer.field("cmd") != Some(name) {
        return wire.fail(malformed(answer.text.as_bytes()));
    }
    Ok(answer)
}

/// Offers a version. False: the launcher speaks PMI-1 only, and expects that it is offered if it refused.
pub(super) fn offer(wire: &mut Wire, version: i64, limit: Limit) -> Result<bool, LaunchError> {
    let subversion = i64::from(version == 1);
    let command = format!("cmd=init pmi_version={version} pmi_subversion={subversion}\n");
    let answer = ask(wire, &command, "response_to_init", limit)?;
    let accepted = answer.is_success().then(|| answer.number("pmi_version"));
    match accepted {
        Some(Some(accepted)) if accepted == version => Ok(true),
        // It goes on with the version it names.
        Some(Some(1)) => Ok(false),
        // It refuses, and waits for another offer.
        None if version == 2 => {
            offer(wire, 1, limit)?;
            Ok(false)
        }
        _ => wire.fail(LaunchError::Protocol {
            protocol: "PMI",
            answer: excerpt(answer.text.as_bytes()),
            expected: "version 1 or 2",
        }),
    }
}

fn refused(what: String, answer: &Answer) -> LaunchError {
    LaunchError::Refused { protocol: "PMI-1", what, reason: excerpt(answer.text.as_bytes()) }
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
        let longest = maxes.number("vallen_max").unwrap_or(most).min(most);
        if longest < 64 || maxes.number("keylen_max").is_some_and(|most| most < 49) {
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

    fn job_id(&self) -> &str {
        &self.space
    }

    fn longest_value(&self) -> usize {
        self.longest_value
    }

    fn mapping(&mut self, wire: &mut Wire, limit: Limit) -> Result<Option<String>, LaunchError> {
        self.get(wire, 0, "PMI_process_mapping", limit)
    }

    fn put(&mut self, wire: &mut Wire, key: &str, value: &str, limit: Limit) -> Result<(), LaunchError> {
        let command = format!("cmd=put kvsname={} key={key} value={value}\n", self.space);
        let answer = ask(wire, &command, "put_result", limit)?;
        if !answer.is_success() {
            return Err(refused(format!("putting `{key}`"), &answer));
        }
        Ok(())
    }

    fn get(&mut self, wire: &mut Wire, _rank: u32, key: &str, limit: Limit) -> Result<Option<String>, LaunchError> {
        let command = format!("cmd=get kvsname={} key={key}\n", self.space);
        let answer = ask(wire, &command, "get_result", limit)?;
        Ok(answer.is_success().then(|| answer.field("value").map(str::to_owned)).flatten())
    }

    fn fence(&mut self, wire: &mut Wire, limit: Limit) -> Result<(), LaunchError> {
        let answer = ask(wire, "cmd=barrier_in\n", "barrier_out", limit)?;
        if !answer.is_success() {
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
