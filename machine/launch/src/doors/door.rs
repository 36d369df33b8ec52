//! Doors: where clients knock.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::time::Duration;

use mapwire_transport::local;
use rustix::io::Errno;

use super::{Credentials, MeetingError};

/// Knocks that the kernel keeps while nobody answers.
const BACKLOG: i32 = 1024;

/// What is served, such as `rpc-536870913-1`: 1 to 64 ASCII letters, digits, `.`, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DoorName(String);

impl FromStr for DoorName {
    type Err = MeetingError;

    fn from_str(text: &str) -> Result<Self, MeetingError> {
        crate::checked_name(text).map(Self).map_err(MeetingError::Name)
    }
}

impl fmt::Display for DoorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DoorName {
    pub(super) fn socket_of(&self, user: u32) -> String {
        format!("mapwire-door-{user}-{self}")
    }
}

/// An open door: a socket that listens. Readable while somebody knocks. It closes when it is dropped, and is inherited by `fork`: whoever
/// of parent and child has a [reception](super::Reception) answers.
#[derive(Debug)]
pub struct Door {
    name: DoorName,
    listener: OwnedFd,
}

impl Door {
    /// Opens the door of this process's user for `name`.
    ///
    /// # Errors
    /// Another process has it; no descriptor left.
    pub fn open(name: DoorName) -> Result<Self, MeetingError> {
        let socket = name.socket_of(rustix::process::geteuid().as_raw());
        match local::listen(&socket, BACKLOG) {
            Ok(listener) => Ok(Self { name, listener }),
            Err(("bind", Errno::ADDRINUSE)) => Err(MeetingError::Taken { holder: holder(&socket), door: socket }),
            Err(failure) => Err(failure.into()),
        }
    }

    #[must_use]
    pub fn name(&self) -> &DoorName {
        &self.name
    }

    /// The name of the socket, without the zero that makes it abstract.
    #[must_use]
    pub fn socket(&self) -> String {
        self.name.socket_of(rustix::process::geteuid().as_raw())
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn holder(socket: &str) -> String {
    match local::connect(socket, Duration::ZERO).and_then(Credentials::of) {
        Ok(Credentials { user, process, .. }) => format!("process {process} of user {user}"),
        Err(_) => "another process".to_owned(),
    }
}
