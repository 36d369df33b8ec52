//! The client's side of a door.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use mapwire_transport::local;
use mapwire_transport::rendezvous::JobAddress;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::record::{Answer, MAX_BYTES, knock as say_knock};
use super::{Credentials, DoorName, MeetingError};

/// What a server gives a client: a place in its job. The server is rank 0.
#[derive(Debug)]
pub struct Admission {
    pub address: JobAddress,
    pub rank: u32,
    pub size: u32,
    /// The server, by the kernel's word.
    pub server: Credentials,
}

/// Knocks for `name` at the doors of these users, in turn, until one is open. Waits `timeout` at most for the server.
///
/// # Errors
/// Nobody serves `name`; the server refuses, ends or does not answer; somebody else stands at its door.
pub fn knock(name: &DoorName, users: &[u32], timeout: Duration) -> Result<Admission, MeetingError> {
    let deadline = Instant::now() + timeout;
    for &user in users {
        let socket = match local::connect(&name.socket_of(user), timeout) {
            Ok(socket) => socket,
            // The door is not open.
            Err(("connect", Errno::CONNREFUSED)) => continue,
            Err(("connect", Errno::AGAIN | Errno::INTR)) => return Err(late(name, timeout)),
            Err(failure) => return Err(failure.into()),
        };
        let server = Credentials::of(&socket)?;
        if server.user != user {
            return Err(MeetingError::Squatter { door: name.socket_of(user), holder: server.user });
        }
        return match ask(name, &socket, timeout, deadline)? {
            Answer::Admitted { address, rank, size } => {
                Ok(Admission { address: address.of_user(user), rank, size, server })
            }
            Answer::Refused(why) => Err(MeetingError::Refused { name: name.to_string(), why }),
        };
    }
    Err(MeetingError::Nobody { name: name.to_string(), user: rustix::process::geteuid().as_raw() })
}

fn late(name: &DoorName, after: Duration) -> MeetingError {
    MeetingError::Timeout { name: name.to_string(), after }
}

fn ask(name: &DoorName, socket: &OwnedFd, timeout: Duration, deadline: Instant) -> Result<Answer, MeetingError> {
    match rustix::net::send(socket, say_knock().as_bytes(), SendFlags::NOSIGNAL) {
        // A server that refuses at once has closed by now; its answer may still wait.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(errno) => return Err(("send", errno).into()),
    }
    let ended = || MeetingError::Ended { name: name.to_string() };
    // One byte more than a record, to tell a longer one.
    let mut bytes = [0; MAX_BYTES + 1];
    loop {
        match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => return Err(ended()),
            Ok((_, length)) => {
                let answer = bytes.get(..length).and_then(Answer::parse);
                return answer.ok_or_else(|| MeetingError::Protocol { name: name.to_string() });
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(("recv", errno).into()),
        }
        if !local::wait_for(socket, PollFlags::IN, Some(deadline))? {
            return Err(late(name, timeout));
        }
    }
}
