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

use mapwire_names::{SharedSecret, StoreAddress};

use super::record::{JobName, RELEASE, offerer_of, offerer_text, random_text};
use super::signed::Notices;
use crate::LaunchError;
use crate::doors::DoorName;

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
    pub host: String,
    pub process: u32,
    /// Where its host is reached.
    pub addresses: Vec<IpAddr>,
}

impl FarServer {
    /// `None`: of another release, or malformed.
    fn parse(id: &str, bytes: &[u8]) -> Option<Self> {
        let (host, process, mut lines) = offerer_of(bytes)?;
        let words = lines.next().unwrap_or_default().split_whitespace();
        let addresses = words.take(MOST_ADDRESSES).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { id: id.to_owned(), host, process, addresses })
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
    id: String,
    /// Value of each name that is served.
    text: String,
}

impl Serving {
    /// Begins with nothing. `addresses`: where this host is reached.
    ///
    /// # Errors
    /// The store cannot be reached, or has another secret.
    pub fn begin(address: &StoreAddress, shared: &SharedSecret, addresses: Vec<IpAddr>) -> Result<Self, LaunchError> {
        let addresses: Vec<String> = addresses.iter().take(MOST_ADDRESSES).map(IpAddr::to_string).collect();
        Ok(Self {
            notices: Notices::open(address, shared, PURPOSE)?,
            id: random_text()?,
            text: offerer_text(addresses.join(" ")),
        })
    }

    /// Serves `names` from here on, and nothing else.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn set_names(&mut self, names: &[DoorName]) -> Result<(), LaunchError> {
        let keys: Vec<String> = names.iter().map(|name| format!("{SERVERS}{name}/{}", self.id)).collect();
        self.notices.set(&keys, &self.text)
    }

    /// Keeps the names alive, and repeats them if the store has lost them. Call this once a second.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn keep(&mut self) -> Result<(), LaunchError> {
        self.notices.keep()
    }

    /// The jobs that the server is asked to join now, also those that it was asked for before. What is not signed by the secret is left
    /// out.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn asked(&mut self) -> Result<Vec<JobName>, LaunchError> {
        let found = self.notices.list(&format!("{VISITS}{}/", self.id))?.into_iter();
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
        let job: JobName = format!("visit.{}", random_text()?).parse()?;
        notices.post([(format!("{VISITS}{}/{job}", server.id), RELEASE.to_owned())])?;
        Ok(Self { _notices: notices, job })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_is_read_back_and_what_makes_no_sense_is_not() {
        let server = FarServer::parse("ab", offerer_text("10.0.0.1 fd00::1").as_bytes()).unwrap();
        assert_eq!((&*server.id, server.process), ("ab", std::process::id()));
        let addresses = ["10.0.0.1", "fd00::1"].map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(server.addresses, addresses);
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
