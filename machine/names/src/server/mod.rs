//! The server of `mapwire serve`: one thread, one loop, everything in memory.
//!
//! A connection is a stranger until one of its messages has opened under the keys of its session. Strangers are limited in number and
//! time. One without the secret costs a hash and a tag, one that repeats a recorded hello also a key-pair computation. If there are too
//! many, the oldest of the address that has most is dropped, so that a flood displaces itself before others. Clients send nothing between
//! requests; one that is silent for long is dropped, and reconnects when it needs something. Its entries last by its leases, not by its
//! connection.

mod connection;
mod memory;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::channel::ChannelKey;
use crate::protocol::Request;
use crate::{LeaseId, SharedSecret, fill_random};
use connection::{Connection, Fate};
use memory::{ClientId, Memory};

/// Most connections at a time: two for each rank of the largest job.
const MAX_CONNECTIONS: usize = 8_192;
/// Most strangers at a time.
const MAX_STRANGERS: usize = 64;
/// Descriptors reserved for other uses.
const SPARE_DESCRIPTORS: u64 = 32;
/// Connections accepted before others are served.
const MAX_ACCEPTS: usize = 64;
/// Interval of checks for expired leases and idle connections.
const SWEEP: Duration = Duration::from_millis(250);

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST: u64 = 2;

/// Counters of the server since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Accepted connections that proved the secret, by a message that opened under the keys of their session.
    pub welcomed: u64,
    /// Connections that did not prove it.
    pub wrong_secret: u64,
    pub other_version: u64,
    /// Connections closed for malformed input.
    pub malformed: u64,
    pub idle: u64,
    /// Connections refused, or closed as the oldest strangers, for lack of room.
    pub no_room: u64,
    pub requests: u64,
}

/// A server of names, bound to its port.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    epoll: OwnedFd,
    key: ChannelKey,
    memory: Memory,
    connections: HashMap<u64, Connection>,
    /// In the order of their connection, with their address; some have become clients or are gone.
    strangers: Vec<(u64, IpAddr)>,
    most_connections: usize,
    next: u64,
    next_sweep: Instant,
    stats: ServerStats,
    buffer: Vec<u8>,
}

impl Server {
    /// Listens at `address`. Port 0 takes any free one.
    ///
    /// # Errors
    /// The port is in use, the address does not belong to this host, or the kernel refuses.
    pub fn bind(address: SocketAddr, secret: &SharedSecret) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, listener.as_fd(), LISTENER)?;
        Ok(Self {
            listener,
            epoll,
            key: ChannelKey::new(secret),
            memory: Memory::default(),
            connections: HashMap::new(),
            strangers: Vec::new(),
            most_connections: most_connections(),
            next: FIRST,
            next_sweep: Instant::now() + SWEEP,
            stats: ServerStats::default(),
            buffer: vec![0; 16 << 10],
        })
    }

    /// The address at which it listens.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// Serves until `stop` is readable.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn serve(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        watch(&self.epoll, stop, STOP)?;
        let outcome = self.serve_all();
        epoll::delete(&self.epoll, stop)?;
        outcome
    }

    fn serve_all(&mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        loop {
            let is_idle = self.connections.is_empty() && self.memory.sizes().1 == 0;
            let limit = (!is_idle).then(|| Timespec::try_from(SWEEP).ok()).flatten();
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let now = Instant::now();
            for event in &events {
                let data = event.data;
                match data.u64() {
                    LISTENER => self.accept(now),
                    STOP => return Ok(()),
                    id => self.serve_one(id, now),
                }
            }
            if now >= self.next_sweep {
                self.next_sweep = now + SWEEP;
                self.sweep(now);
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..MAX_ACCEPTS {
            match self.listener.accept() {
                Ok((stream, from)) => self.take(stream, from.ip(), now),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    // No descriptors or no memory. Dropping a stranger frees some.
                    _ => {
                        if !self.drop_stranger() {
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        return;
                    }
                },
            }
        }
    }

    fn take(&mut self, stream: TcpStream, from: IpAddr, now: Instant) {
        self.stats.accepted += 1;
        if self.connections.len() >= self.most_connections && !self.drop_stranger() {
            self.stats.no_room += 1;
            connection::refuse(stream);
            return;
        }
        let id = self.next;
        if stream.set_nonblocking(true).is_err() || watch(&self.epoll, stream.as_fd(), id).is_err() {
            return;
        }
        self.next += 1;
        self.connections.insert(id, Connection::new(stream, now));
        self.strangers.push((id, from));
        if self.strangers.len() > MAX_STRANGERS {
            self.forget_others();
        }
        if self.strangers.len() > MAX_STRANGERS {
            self.drop_stranger();
        }
    }

    /// Forgets connections that are no longer strangers.
    fn forget_others(&mut self) {
        let connections = &self.connections;
        self.strangers.retain(|(id, _)| {
            let connection = connections.get(id);
            connection.is_some_and(Connection::is_stranger)
        });
    }

    /// Drops the oldest stranger of the address that has most.
    fn drop_stranger(&mut self) -> bool {
        self.forget_others();
        let count = |from| self.strangers.iter().filter(|it| it.1 == from).count();
        // `max_by_key` returns the last of equals, and the oldest is to go.
        let froms = self.strangers.iter().rev().map(|it| it.1);
        let Some(most) = froms.max_by_key(|&from| count(from)) else {
            return false;
        };
        let oldest = self.strangers.iter().position(|it| it.1 == most);
        let Some((id, _)) = oldest.map(|at| self.strangers.remove(at)) else {
            return false;
        };
        self.stats.no_room += 1;
        self.connections.remove(&id);
        true
    }

    fn serve_one(&mut self, id: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let (memory, requests) = (&mut self.memory, &mut self.stats.requests);
        let mut answer = |request| {
            *requests += 1;
            let lease = match request {
                Request::Grant => unused(memory)?,
                _ => LeaseId(0),
            };
            Some(memory.handle(ClientId(id), request, lease, now))
        };
        let was_stranger = connection.is_stranger();
        let fate = connection.serve(&self.key, &mut self.buffer, &mut answer, now);
        if was_stranger && !connection.is_stranger() {
            self.stats.welcomed += 1;
        }
        let interest = match fate {
            Fate::Reads => epoll::EventFlags::IN,
            Fate::Writes => epoll::EventFlags::OUT,
            over => {
                match over {
                    Fate::WrongSecret => self.stats.wrong_secret += 1,
                    Fate::OtherVersion => self.stats.other_version += 1,
                    Fate::Malformed => self.stats.malformed += 1,
                    _ => {}
                }
                self.connections.remove(&id);
                return;
            }
        };
        let data = epoll::EventData::new_u64(id);
        if connection.is_newly(fate) && epoll::modify(&self.epoll, connection.as_fd(), data, interest).is_err() {
            self.connections.remove(&id);
        }
    }

    fn sweep(&mut self, now: Instant) {
        self.memory.handle_time(now);
        let before = self.connections.len();
        self.connections.retain(|_, connection| !connection.is_late(now));
        self.stats.idle += (before - self.connections.len()) as u64;
    }
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token);
    Ok(epoll::add(epoll, fd, data, epoll::EventFlags::IN)?)
}

/// A random number that no lease has.
fn unused(memory: &Memory) -> Option<LeaseId> {
    loop {
        let mut bytes = [0; 8];
        fill_random(&mut bytes).ok()?;
        // Like etcd's, it fits a signed number and is not 0.
        let id = LeaseId(u64::from_le_bytes(bytes) >> 1);
        if id.0 != 0 && !memory.has(id) {
            return Some(id);
        }
    }
}

/// Most connections that the limit on descriptors allows, after raising it as far as possible.
fn most_connections() -> usize {
    let wanted = MAX_CONNECTIONS as u64 + SPARE_DESCRIPTORS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = maximum.map_or(wanted, |most| most.min(wanted));
    if current.is_some_and(|now| now < raised) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum });
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
    current.saturating_sub(SPARE_DESCRIPTORS).clamp(1, MAX_CONNECTIONS as u64) as usize
}
