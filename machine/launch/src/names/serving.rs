//! Servers in a store, and what is asked of them: how a client meets a server of another host.
//!
//! A server says what it serves for as long as it keeps its lease. A client makes up a job of two, and asks the server to join it as rank 0;
//! both meet as the members of any other job.
//!
//! | key | attached to | value |
//! |---|---|---|
//! | `mapwire/server/NAME/ID` | a lease of the server | its release, host, process and addresses |
//! | `mapwire/visit/ID/JOB` | the client's lease | its release |

use std::net::IpAddr;

use mapwire_names::{LeaseId, SharedSecret, StoreAddress};

use super::record::{JobName, RELEASE, host_name, lines_of, random_text};
use super::signed::Notices;
use crate::LaunchError;
use crate::meeting::DoorName;

const PURPOSE: &str = "mapwire serving";
const SERVERS: &str = "mapwire/server/";
const VISITS: &str = "mapwire/visit/";

/// Ranks of a job of a server and one client.
pub const VISIT_SIZE: u32 = 2;

/// Addresses of a host that are listed, at most.
const MOST_ADDRESSES: usize = 8;

/// A process that serves something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarServer {
    id: String,
    /// Its host's name.
    pub host: String,
    /// Its process id there.
    pub process: u32,
    /// Where its host is reached.
    pub addresses: Vec<IpAddr>,
}

impl FarServer {
    fn to_text(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        format!("{RELEASE}\n{}\n{}\n{}", self.host, self.process, addresses.join(" "))
    }

    /// `None`: of another release, or malformed.
    fn parse(id: &str, bytes: &[u8]) -> Option<Self> {
        let mut lines = lines_of(bytes)?;
        let release = lines.next()?;
        let server = Self {
            id: id.to_owned(),
            host: lines.next()?.to_owned(),
            process: lines.next()?.parse().ok()?,
            addresses: {
                let words = lines.next().unwrap_or_default().split_whitespace();
                let addresses = words.take(MOST_ADDRESSES).map(str::parse);
                addresses.collect::<Result<_, _>>().ok()?
            },
        };
        (release == RELEASE).then_some(server)
    }
}

/// The servers of `name` in a store. What is not signed by the secret is left out.
///
/// # Errors
/// The store cannot be reached, or has another secret.
pub fn servers(address: &StoreAddress, shared: &SharedSecret, name: &DoorName) -> Result<Vec<FarServer>, LaunchError> {
    let found = Notices::open(address, shared, PURPOSE)?.list(&format!("{SERVERS}{name}/"))?;
    Ok(found.iter().filter_map(|(id, value)| FarServer::parse(id, value)).collect())
}

/// What a server serves, in a store. It ends when this is dropped, or has not been [kept](Self::keep) for some seconds.
#[derive(Debug)]
pub struct Serving {
    notices: Notices,
    server: FarServer,
    /// Each with a lease of its own, so that it can end alone.
    names: Vec<(DoorName, LeaseId)>,
}

impl Serving {
    /// Begins with nothing. `addresses`: where this host is reached.
    ///
    /// # Errors
    /// The store cannot be reached, or has another secret.
    pub fn begin(
        address: &StoreAddress,
        shared: &SharedSecret,
        mut addresses: Vec<IpAddr>,
    ) -> Result<Self, LaunchError> {
        addresses.truncate(MOST_ADDRESSES);
        Ok(Self {
            notices: Notices::open(address, shared, PURPOSE)?,
            server: FarServer { id: random_text()?, host: host_name(), process: std::process::id(), addresses },
            names: Vec::new(),
        })
    }

    /// Serves `names` from here on, and nothing else.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn set_names(&mut self, names: &[DoorName]) -> Result<(), LaunchError> {
        while let Some(at) = self.names.iter().position(|(name, _)| !names.contains(name)) {
            self.notices.withdraw(self.names[at].1)?;
            self.names.remove(at);
        }
        for name in names {
            if !self.names.iter().any(|(known, _)| known == name) {
                let lease = self.show(name)?;
                self.names.push((name.clone(), lease));
            }
        }
        Ok(())
    }

    fn show(&mut self, name: &DoorName) -> Result<LeaseId, LaunchError> {
        let lease = self.notices.grant()?;
        self.notices.post(&format!("{SERVERS}{name}/{}", self.server.id), &self.server.to_text(), lease)?;
        Ok(lease)
    }

    /// Says that the server lives, and shows it anew if the store has forgotten it. To be called once a second.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn keep(&mut self) -> Result<(), LaunchError> {
        for at in 0..self.names.len() {
            let (name, lease) = self.names[at].clone();
            if !self.notices.keep(lease)? {
                self.names[at].1 = self.show(&name)?;
            }
        }
        Ok(())
    }

    /// The jobs that the server is asked to join now, also those that it was asked for before. What is not signed by the secret is left
    /// out.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn asked(&mut self) -> Result<Vec<JobName>, LaunchError> {
        let found = self.notices.list(&format!("{VISITS}{}/", self.server.id))?.into_iter();
        let of_release = found.filter(|(_, value)| value == RELEASE.as_bytes());
        Ok(of_release.filter_map(|(job, _)| job.parse().ok()).collect())
    }
}

/// What a server is asked for, as long as this is there.
#[derive(Debug)]
pub struct Visiting {
    _notices: Notices,
    /// The job that the server is to join as rank 0; the client is rank 1.
    pub job: JobName,
}

impl Visiting {
    /// Asks a server. It has some seconds to come.
    ///
    /// # Errors
    /// The store cannot be reached, or has another secret.
    pub fn begin(address: &StoreAddress, shared: &SharedSecret, server: &FarServer) -> Result<Self, LaunchError> {
        let mut notices = Notices::open(address, shared, PURPOSE)?;
        let lease = notices.grant()?;
        let job: JobName = format!("visit.{}", random_text()?).parse()?;
        notices.post(&format!("{VISITS}{}/{job}", server.id), RELEASE, lease)?;
        Ok(Self { _notices: notices, job })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_is_read_back_and_what_makes_no_sense_is_not() {
        let server = FarServer {
            id: "ab".into(),
            host: "node1".into(),
            process: 12,
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        };
        let text = server.to_text();
        assert_eq!(FarServer::parse("ab", text.as_bytes()), Some(server));
        for text in [
            "",
            "0\nnode1\n12\n10.0.0.1",
            &format!("{RELEASE}\nnode1\nx\n10.0.0.1"),
            &format!("{RELEASE}\nnode1\n12\nnowhere"),
            &format!("{RELEASE}\nnode\u{1b}1\n12\n"),
        ] {
            assert_eq!(FarServer::parse("ab", text.as_bytes()), None, "{text}");
        }
    }
}
