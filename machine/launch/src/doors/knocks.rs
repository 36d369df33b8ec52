//! Those who knock and have no answer yet.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use mapwire_transport::local::is_own;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::Credentials;
use super::record::{Answer, MAX_BYTES, check_knock};

const SILENT: Duration = Duration::from_secs(2);
const MOST: usize = 256;
/// Of these, those of a user other than the server's and root.
const MOST_OF_OTHER: usize = 64;

#[derive(Debug)]
pub(super) struct Knock {
    socket: OwnedFd,
    pub(super) who: Credentials,
    since: Instant,
    /// It has said what it must, and waits for a place.
    pub(super) is_waiting: bool,
}

impl Knock {
    /// Says `answer`. Whether it was taken.
    pub(super) fn answer(&self, answer: &Answer) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.socket, answer.to_text().as_bytes(), flags).is_ok()
    }

    /// Reads what it says. `None`: it is over.
    fn hear(&mut self) -> Option<()> {
        let mut bytes = [0; MAX_BYTES + 1];
        match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            // A client that waits must not send again.
            Ok((_, length)) if length > 0 && !self.is_waiting => {
                match bytes.get(..length).and_then(check_knock)? {
                    Ok(()) => self.is_waiting = true,
                    Err(why) => {
                        self.answer(&Answer::Refused(why));
                        return None;
                    }
                }
                Some(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Some(()),
            _ => None,
        }
    }
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Knocks(Vec<Knock>);

impl Knocks {
    /// Adds a knock. If there are too many, the oldest of its user goes, or of the user with the most.
    pub(super) fn take(&mut self, socket: OwnedFd, who: Credentials, now: Instant) {
        let count = |user| self.0.iter().filter(|k| k.who.user == user).count();
        let most = if !is_own(who.user) && count(who.user) >= MOST_OF_OTHER {
            Some(who.user)
        } else if self.0.len() >= MOST {
            self.0.iter().map(|k| k.who.user).max_by_key(|&u| count(u))
        } else {
            None
        };
        if let Some(at) = self.0.iter().position(|k| Some(k.who.user) == most) {
            self.0.remove(at);
        }
        self.0.push(Knock { socket, who, since: now, is_waiting: false });
    }

    /// Reads their records, and closes those that are gone, malformed or silent for too long.
    pub(super) fn hear(&mut self, now: Instant) {
        self.0.retain_mut(|knock| {
            let is_late = !knock.is_waiting && now >= knock.since + SILENT;
            knock.hear().is_some() && !is_late
        });
    }

    /// Those that wait for a place, out of the list.
    pub(super) fn take_waiting(&mut self) -> Vec<Knock> {
        let (waiting, others) = self.0.drain(..).partition(|knock| knock.is_waiting);
        self.0 = others;
        waiting
    }

    /// Puts one back, which waits on.
    pub(super) fn put_back(&mut self, knock: Knock) {
        self.0.push(knock);
    }

    pub(super) fn poll_at(&self) -> Option<Instant> {
        let silent = self.0.iter().filter(|knock| !knock.is_waiting);
        silent.map(|knock| knock.since + SILENT).min()
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|knock| knock.socket.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn knock(knocks: &mut Knocks, user: u32) -> OwnedFd {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None);
        let (server, client) = pair.unwrap();
        let who = Credentials { user, group: user, process: 1 };
        knocks.take(server, who, Instant::now());
        client
    }

    #[test]
    fn knocks_of_another_user_push_out_his_own_and_leave_room() {
        let own = rustix::process::geteuid().as_raw();
        let mut knocks = Knocks::default();
        let mut clients = vec![knock(&mut knocks, own + 1)];
        for _ in 0..1000 {
            clients.push(knock(&mut knocks, own + 2));
        }
        let of = |knocks: &Knocks, user| knocks.0.iter().filter(|k| k.who.user == user).count();
        assert_eq!(of(&knocks, own + 1), 1);
        assert_eq!(of(&knocks, own + 2), MOST_OF_OTHER);
        for _ in 0..1000 {
            clients.push(knock(&mut knocks, own));
        }
        // Who has most makes room.
        assert_eq!(of(&knocks, own + 1), 1);
        assert_eq!(of(&knocks, own + 2), MOST_OF_OTHER);
        assert_eq!(of(&knocks, own), MOST - MOST_OF_OTHER - 1);
    }
}
