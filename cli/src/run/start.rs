//! Everything between the command line and a running job.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use mapwire_host::limits::advice;
use mapwire_transport::job::channels;
use mapwire_transport::rendezvous::Broker;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Job;

pub(super) fn broker(job: &Job) -> Result<Broker, String> {
    let hosts = &job.layout.hosts;
    match &job.layout.here {
        None => Broker::new(hosts, channels()),
        Some((here, secret)) => Broker::of_host(hosts, *here, *secret, channels()),
    }
    .map_err(|error| error.to_string())
}

/// Raises the soft limit on descriptors to what the launcher and its ranks (who inherit it) need:
/// pipes and sockets here, a channel a peer there, and descriptors under way between them, also those that a rank passes to
/// one that does not take them.
pub(super) fn raise_descriptor_limit(ranks: u32) {
    let ranks = u64::from(ranks);
    let wanted = 256 + 16 * ranks + ranks * ranks + (64 * ranks * ranks).min(16_384);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(wanted, |most| wanted.min(most));
    if current.is_some_and(|now| now < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// The error, and how to mend it.
pub(super) fn explain(error: &io::Error) -> String {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::AGAIN) => format!("{error}: too many processes; see `ulimit -u`"),
        Some(errno) => format!("{error}{}", advice(errno)),
        None => error.to_string(),
    }
}

/// Standard input that is at its end, also where there is no `/dev/null`.
pub(crate) fn nothing() -> Stdio {
    pipe_with(PipeFlags::CLOEXEC).map_or_else(|_| Stdio::null(), |(reader, _)| reader.into())
}

/// Our own standard input, unless that is a terminal: ranks are not in its foreground group and
/// would be stopped when they read it, so the launcher reads it for them.
pub(super) fn stdin_of_rank_0() -> Stdio {
    if !io::stdin().is_terminal() {
        return Stdio::inherit();
    }
    let Ok((reader, writer)) = pipe_with(PipeFlags::CLOEXEC) else {
        return nothing();
    };
    let carry = move || carry_terminal(writer);
    match std::thread::Builder::new().name("stdin".into()).stack_size(128 * 1024).spawn(carry) {
        Ok(_) => Stdio::from(reader),
        Err(_) => nothing(),
    }
}

/// Copies the terminal to rank 0 until either ends.
fn carry_terminal(writer: OwnedFd) {
    let mut writer = File::from(writer);
    let mut bytes = [0; 4096];
    loop {
        let count = read_stdin(&mut bytes);
        if count == 0 || writer.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

/// Reads our standard input; 0 at its end. In the background, where the terminal may not be read, it waits.
pub(super) fn read_stdin(bytes: &mut [u8]) -> usize {
    loop {
        match io::stdin().lock().read(bytes) {
            Ok(count) => return count,
            Err(error) if error.raw_os_error() == Some(libc::EIO) => std::thread::sleep(Duration::from_millis(200)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return 0,
        }
    }
}
