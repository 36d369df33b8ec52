//! The names by which clients find servers.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use mapwire::meeting::DoorName;

/// A version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Served {
    pub(crate) program: u32,
    pub(crate) version: u32,
}

impl Served {
    /// Name of this version's door.
    pub(crate) fn door(self) -> Option<DoorName> {
        format!("rpc-{}-{}", self.program, self.version).parse().ok()
    }

    /// Name of the door of all versions, which tells clients that their version is wrong.
    pub(crate) fn door_of_program(self) -> Option<DoorName> {
        format!("rpc-{}", self.program).parse().ok()
    }

    /// The user whose process serves this at a socket of this name; `None` if it is not such a door's.
    pub(crate) fn user_at(self, socket: &str) -> Option<u32> {
        let rest = socket.strip_prefix("mapwire-door-")?;
        let (user, name) = rest.split_once('-')?;
        let is_it = name == self.door()?.to_string();
        user.parse().ok().filter(|_| is_it)
    }
}

/// Location of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    Here,
    Elsewhere,
    Unknown,
}

/// Whether `host` is this one: by its name, or by an address that this host can assign to a socket.
pub(crate) fn locate(host: &str) -> Whereabouts {
    let own = rustix::system::uname();
    if matches!(host, "" | "localhost") || own.nodename().to_bytes() == host.as_bytes() {
        return Whereabouts::Here;
    }
    let Ok(mut addresses) = (host, 0).to_socket_addrs() else {
        return Whereabouts::Unknown;
    };
    if addresses.any(is_own) { Whereabouts::Here } else { Whereabouts::Elsewhere }
}

/// Whether this host has an address. Sockets can also be bound to addresses that many hosts share.
fn is_own(address: SocketAddr) -> bool {
    let is_of_many = match address.ip() {
        IpAddr::V4(address) => address.is_broadcast() || address.is_multicast(),
        IpAddr::V6(address) => address.is_multicast(),
    };
    !is_of_many && UdpSocket::bind(address).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_known_by_its_names_and_addresses() {
        let own = rustix::system::uname();
        let own = own.nodename().to_str().unwrap();
        for here in ["localhost", "127.0.0.1", "127.8.9.1", "::1", "", own] {
            assert_eq!(locate(here), Whereabouts::Here, "{here}");
        }
        for elsewhere in ["192.0.2.7", "255.255.255.255", "224.0.0.1", "ff02::1"] {
            assert_eq!(locate(elsewhere), Whereabouts::Elsewhere, "{elsewhere}");
        }
        assert_eq!(locate("no host has this name"), Whereabouts::Unknown);
    }

    #[test]
    fn a_door_is_read_from_its_socket_and_others_are_not() {
        let served = Served { program: 7, version: 2 };
        assert_eq!(served.user_at("mapwire-door-1000-rpc-7-2"), Some(1000));
        for other in ["mapwire-door-1000-rpc-7-1", "mapwire-door-x-rpc-7-2", "mapwire-door-1000", "127.0.0.1.0.111"] {
            assert_eq!(served.user_at(other), None, "{other}");
        }
    }
}
