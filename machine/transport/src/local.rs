//! What a host gives to processes that meet on it: Unix sockets with abstract names, of which nothing is left on disk and which go with
//! their process, the word of who is at the other end, and random bytes for keys.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use mapwire_host::descriptors::above_stdio;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// The system call that failed, and why.
pub type Failure = (&'static str, Errno);

fn at(call: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| (call, errno)
}

fn socket(name: &str, flags: SocketFlags) -> Result<(OwnedFd, SocketAddrUnix), Failure> {
    let flags = SocketFlags::CLOEXEC | flags;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(at("abstract address"))?;
    Ok((socket.and_then(above_stdio).map_err(at("socket"))?, address))
}

/// A non-blocking socket that listens at `name`. The kernel keeps `backlog` connections while nobody accepts them.
///
/// # Errors
/// [`Errno::ADDRINUSE`] if another process has the name; no descriptor left.
pub fn listen(name: &str, backlog: i32) -> Result<OwnedFd, Failure> {
    let (socket, address) = socket(name, SocketFlags::NONBLOCK)?;
    rustix::net::bind(&socket, &address).map_err(at("bind"))?;
    rustix::net::listen(&socket, backlog).map_err(at("listen"))?;
    Ok(socket)
}

/// The next connection to a socket that listens, non-blocking.
///
/// # Errors
/// [`Errno::AGAIN`] if there is none; no descriptor left.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).and_then(above_stdio)
}

/// Connects to the socket at `name`. A full queue of connections is waited for, for `timeout` at most.
///
/// # Errors
/// [`Errno::CONNREFUSED`] if nobody listens there; [`Errno::AGAIN`] and [`Errno::INTR`] when the time is over.
pub fn connect(name: &str, timeout: Duration) -> Result<OwnedFd, Failure> {
    let deadline = Instant::now() + timeout;
    let (socket, address) = socket(name, SocketFlags::empty())?;
    let limit = timeout.max(Duration::from_millis(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit)).map_err(at("setsockopt"))?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) if Instant::now() < deadline => {}
            Err(errno) => return Err(("connect", errno)),
        }
    }
}

/// Waits until `flags` hold, the connection ends or the deadline passes (`false`). `None`: there is no deadline.
///
/// # Errors
/// The kernel refuses to wait.
pub fn wait_for(fd: impl AsFd, flags: PollFlags, deadline: Option<Instant>) -> Result<bool, Failure> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // What a `Timespec` cannot hold is as good as no limit.
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&fd, flags)], limit.as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(("poll", errno)),
        }
    }
}

/// Random bytes of the kernel, at most 256, which come whole.
///
/// # Errors
/// The kernel gives none.
pub fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(at("getrandom"))?;
    Ok(bytes)
}

/// A process at the other end of a connection, by the kernel's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its effective user when it connected.
    pub user: u32,
    pub group: u32,
    /// Its number; 0 if it is in no process namespace that this process sees.
    pub process: u32,
}

impl Credentials {
    /// Those of the peer of a connection.
    ///
    /// # Errors
    /// Not a connected socket.
    pub fn of(socket: impl AsFd) -> Result<Self, Failure> {
        let peer = sockopt::socket_peercred(socket).map_err(at("getsockopt(SO_PEERCRED)"))?;
        Ok(Self {
            user: peer.uid.as_raw(),
            group: peer.gid.as_raw(),
            process: u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0),
        })
    }
}

/// Whether `user` is this process's own, or root.
#[must_use]
pub fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}
