//! Doors: where clients knock.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

use mapwire_host::descriptors::above_stdio;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::error::os;
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

    pub(super) fn address_of(&self, user: u32) -> Result<SocketAddrUnix, MeetingError> {
        let name = self.socket_of(user);
        SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(os("abstract address"))
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
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .and_then(above_stdio)
            .map_err(os("socket"))?;
        let user = rustix::process::geteuid().as_raw();
        let place = name.address_of(user)?;
        match rustix::net::bind(&listener, &place) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                return Err(MeetingError::Taken { door: name.socket_of(user), holder: holder(&place) });
            }
            Err(errno) => return Err(os("bind")(errno)),
        }
        rustix::net::listen(&listener, BACKLOG).map_err(os("listen"))?;
        Ok(Self { name, listener })
    }

    /// What is served here.
    #[must_use]
    pub fn name(&self) -> &DoorName {
        &self.name
    }

    /// The name of the socket, without the zero that makes it abstract.
    #[must_use]
    pub fn socket(&self) -> String {
        self.name.socket_of(rustix::process::geteuid().as_raw())
    }

    pub(super) fn accept(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(&self.listener, flags).and_then(above_stdio)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn holder(place: &SocketAddrUnix) -> String {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let asked = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).and_then(|socket| {
        rustix::net::connect(&socket, place)?;
        Credentials::of(socket)
    });
    match asked {
        Ok(Credentials { user, process, .. }) => format!("process {process} of user {user}"),
        Err(_) => "another process".to_owned(),
    }
}
