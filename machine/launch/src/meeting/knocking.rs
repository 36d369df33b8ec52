//! The client's side of a door.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use mapwire_host::descriptors::above_stdio;
use mapwire_transport::rendezvous::JobAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::error::os;
use super::record::{Answer, MAX_BYTES, knock as say_knock};
use super::{Credentials, DoorName, MeetingError};

/// What a server gives a client: a place in its job. The server is rank 0.
#[derive(Debug)]
pub struct Admission {
    /// Where the client joins.
    pub address: JobAddress,
    /// Its rank there.
    pub rank: u32,
    /// Ranks in the job.
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
        let Some(socket) = connect(name, user, timeout, deadline)? else {
            continue;
        };
        let server = Credentials::of(&socket).map_err(os("getsockopt(SO_PEERCRED)"))?;
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

/// `None`: the door is not open.
fn connect(name: &DoorName, user: u32, timeout: Duration, deadline: Instant) -> Result<Option<OwnedFd>, MeetingError> {
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .and_then(above_stdio)
        .map_err(os("socket"))?;
    // A full queue of knocks makes connect wait; this bounds it.
    let limit = timeout.max(Duration::from_millis(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit)).map_err(os("setsockopt"))?;
    let place = name.address_of(user)?;
    loop {
        match rustix::net::connect(&socket, &place) {
            Ok(()) => return Ok(Some(socket)),
            Err(Errno::CONNREFUSED) => return Ok(None),
            Err(Errno::INTR) if Instant::now() < deadline => {}
            Err(Errno::AGAIN | Errno::INTR) => return Err(late(name, timeout)),
            Err(errno) => return Err(os("connect")(errno)),
        }
    }
}

fn late(name: &DoorName, after: Duration) -> MeetingError {
    MeetingError::Timeout { name: name.to_string(), after }
}

fn ask(name: &DoorName, socket: &OwnedFd, timeout: Duration, deadline: Instant) -> Result<Answer, MeetingError> {
    match rustix::net::send(socket, say_knock().as_bytes(), SendFlags::NOSIGNAL) {
        // A server that refuses at once has closed by now; its answer may still wait.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(errno) => return Err(os("send")(errno)),
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
            Err(errno) => return Err(os("recv")(errno)),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(name, timeout));
        }
        let limit = Timespec::try_from(left).ok();
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(os("poll")(errno)),
        }
    }
}
