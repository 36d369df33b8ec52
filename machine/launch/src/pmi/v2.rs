//! PMI-2: `name=value;`, a semicolon in a value doubled, behind the length in six characters.

use super::dialect::Dialect;
use super::wire::{Answer, Limit, Wire};
use crate::LaunchError;
use crate::error::excerpt;

/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 16;
/// Characters of the longest value: PMI-2 allows 1,024 with the end of a C string.
const LONGEST_VALUE: usize = 1000;
const MAX_JOB_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct V2 {
    job: String,
}

fn is_success(answer: &Answer) -> bool {
    answer.field("rc") == Some("0")
}

/// The value, if the launcher says that there is one.
fn found(answer: &Answer) -> Option<&str> {
    let is_found = answer.field("found").is_some_and(|found| found.eq_ignore_ascii_case("true"));
    answer.field("value").filter(|_| is_found)
}

fn malformed(answer: String, expected: &'static str) -> LaunchError {
    LaunchError::Protocol { protocol: "PMI-2", answer, expected }
}

/// A command as it is sent. `fields` follow `cmd=`; each ends with a semicolon.
fn command(fields: &str) -> Vec<u8> {
    let text = format!("cmd={fields}");
    format!("{:6}{text}", text.len()).into_bytes()
}

/// Sends a command and reads the answer, which must be named `name`.
fn ask(wire: &mut Wire, fields: &str, name: &'static str, limit: Limit) -> Result<Answer, LaunchError> {
    wire.send(&command(fields), limit)?;
    let head = wire.read(6, limit)?;
    let length = std::str::from_utf8(&head).ok().and_then(|head| head.trim().parse().ok());
    let Some(length) = length.filter(|length| (1..=MAX_ANSWER_BYTES).contains(length)) else {
        return wire.fail(malformed(excerpt(&head), "a length"));
    };
    let bytes = wire.read(length, limit)?;
    Answer::read(wire, "PMI-2", bytes, |it| it == ';', name)
}

/// [`ask`]; the answer must report success.
fn order(wire: &mut Wire, what: &str, fields: &str, name: &'static str, limit: Limit) -> Result<Answer, LaunchError> {
    let answer = ask(wire, fields, name, limit)?;
    if is_success(&answer) {
        return Ok(answer);
    }
    Err(LaunchError::Refused { protocol: "PMI-2", what: what.into(), reason: answer.excerpt() })
}

impl V2 {
    pub(super) fn begin(wire: &mut Wire, rank: u32, size: u32, limit: Limit) -> Result<Self, LaunchError> {
        let job = std::env::var("PMI_JOBID").unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b';';
        let job_field =
            if !job.is_empty() && job.bytes().all(is_plain) { format!("pmijobid={job};") } else { String::new() };
        let fields = format!("fullinit;{job_field}pmirank={rank};threaded=FALSE;");
        let answer = order(wire, "joining the launcher", &fields, "fullinit-response", limit)?;
        let agrees = |name, number: u32| answer.field(name).and_then(|value| value.parse().ok()) == Some(number);
        if !agrees("rank", rank) || !agrees("size", size) {
            let expected = "the rank and size of PMI_RANK and PMI_SIZE";
            return wire.fail(malformed(answer.excerpt(), expected));
        }
        let answer = order(wire, "the name of the job", "job-getid;", "job-getid-response", limit)?;
        let job = answer.field("jobid").unwrap_or_default();
        if job.is_empty() || job.len() > MAX_JOB_BYTES {
            return wire.fail(malformed(answer.excerpt(), "a job's name"));
        }
        Ok(Self { job: job.into() })
    }
}

impl Dialect for V2 {
    fn protocol(&self) -> &'static str {
        "PMI-2"
    }

    fn longest_value(&self) -> usize {
        LONGEST_VALUE
    }

    fn put(&mut self, wire: &mut Wire, key: &str, value: &str, limit: Limit) -> Result<(), LaunchError> {
        let fields = format!("kvs-put;key={key};value={value};");
        order(wire, "putting a value", &fields, "kvs-put-response", limit).map(|_| ())
    }

    fn get(&mut self, wire: &mut Wire, rank: u32, key: &str, limit: Limit) -> Result<Option<String>, LaunchError> {
        let fields = format!("kvs-get;jobid={};srcid={rank};key={key};", self.job);
        let answer = ask(wire, &fields, "kvs-get-response", limit)?;
        Ok(found(&answer).map(str::to_owned))
    }

    fn fence(&mut self, wire: &mut Wire, limit: Limit) -> Result<(), LaunchError> {
        let what = "a fence of all ranks";
        order(wire, what, "kvs-fence;", "kvs-fence-response", limit).map(|_| ())
    }

    fn abort(&self, _code: i32, message: &str) -> Vec<u8> {
        let message: String = message.chars().take(200).collect();
        let message = message.replace(';', ",");
        command(&format!("abort;isworld=TRUE;msg={message};"))
    }

    fn finish(&mut self, wire: &mut Wire, limit: Limit) -> Result<(), LaunchError> {
        let what = "leaving the launcher";
        order(wire, what, "finalize;", "finalize-response", limit).map(|_| ())
    }
}
