//! Addresses of this host at which datagrams are received, as a user names them for hosts that differ.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use if_addrs::{IfAddr, Interface};

use super::MAX_ADDRESSES;

/// Addresses, as they are written: `auto`, or a list of addresses, networks (`10.0.0.0/8`) and interfaces (`eth0`), the preferred
/// first. What stands for several addresses gives them in the order of their networks, which is the same on all hosts of these
/// networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<Selector>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selector {
    /// Every address that other hosts could reach.
    Auto,
    One(IpAddr),
    Network(IpAddr, u8),
    Interface(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressesError {
    /// The list cannot be read.
    #[error("`{0}` is not an address, a network (10.0.0.0/8), an interface (eth0) or `auto`")]
    Malformed(String),
    /// No address of this host fits.
    #[error("`{item}` fits no address of this host, which has {has}")]
    NotHere {
        item: String,
        /// The addresses there are, with their interfaces.
        has: String,
    },
    /// The system does not tell its addresses.
    #[error("the addresses of this host cannot be listed: {0}")]
    Unknown(String),
}

impl Addresses {
    /// Every address that other hosts could reach.
    #[must_use]
    pub fn auto() -> Self {
        Self(vec![Selector::Auto])
    }

    /// The addresses of this host that are meant, at most [`MAX_ADDRESSES`]. Where there is none but the loopback address, `auto` means
    /// that.
    ///
    /// # Errors
    /// [`AddressesError::NotHere`], [`AddressesError::Unknown`].
    pub fn resolve(&self) -> Result<Vec<IpAddr>, AddressesError> {
        let all = if_addrs::get_if_addrs();
        self.among(all.map_err(|error| AddressesError::Unknown(error.to_string()))?)
    }

    fn among(&self, mut all: Vec<Interface>) -> Result<Vec<IpAddr>, AddressesError> {
        all.sort_by_key(|interface| (network_of(interface), interface.name.clone(), interface.ip()));
        let mut found: Vec<IpAddr> = Vec::new();
        for item in &self.0 {
            let mut fit: Vec<IpAddr> = all.iter().filter(|it| item.fits(it)).map(Interface::ip).collect();
            if fit.is_empty() && *item == Selector::Auto {
                fit.push(std::net::Ipv4Addr::LOCALHOST.into());
            }
            if fit.is_empty() {
                let has = all.iter().map(|it| format!("{} ({})", it.ip(), it.name));
                return Err(AddressesError::NotHere {
                    item: item.to_string(),
                    has: has.collect::<Vec<_>>().join(", "),
                });
            }
            for address in fit {
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
        found.truncate(MAX_ADDRESSES);
        Ok(found)
    }
}

impl Selector {
    fn fits(&self, interface: &Interface) -> bool {
        let ip = interface.ip();
        match self {
            Self::Auto => !interface.is_loopback() && !is_link_local(ip),
            Self::One(address) => *address == ip,
            Self::Network(network, bits) => masked(ip, *bits) == masked(*network, *bits),
            // Link-local addresses mean nothing without their interface, which a card does not name.
            Self::Interface(name) => *name == interface.name && !is_link_local(ip),
        }
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Family, and the bits of an address that name its network.
fn masked(ip: IpAddr, bits: u8) -> (u8, u128) {
    let (family, value, width) = match ip {
        IpAddr::V4(ip) => (4, u128::from(u32::from(ip)), 32),
        IpAddr::V6(ip) => (6, u128::from(ip), 128),
    };
    let host_bits = u32::from(width - bits.min(width));
    (family, value.checked_shr(host_bits).unwrap_or(0))
}

/// Sort key that is equal on all hosts of a network: IPv4 before IPv6, then the network's number.
fn network_of(interface: &Interface) -> (u8, u128, u8) {
    let bits = match &interface.addr {
        IfAddr::V4(v4) => v4.prefixlen,
        IfAddr::V6(v6) => v6.prefixlen,
    };
    let (family, network) = masked(interface.ip(), bits);
    (family, network, bits)
}

impl FromStr for Addresses {
    type Err = AddressesError;

    fn from_str(text: &str) -> Result<Self, AddressesError> {
        let items = text.split(',').map(|word| word.trim().parse());
        Ok(Self(items.collect::<Result<_, _>>()?))
    }
}

impl FromStr for Selector {
    type Err = AddressesError;

    fn from_str(text: &str) -> Result<Self, AddressesError> {
        let malformed = || AddressesError::Malformed(text.chars().take(64).collect());
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::One(address));
        }
        if let Some((network, bits)) = text.split_once('/') {
            let network: IpAddr = network.parse().map_err(|_| malformed())?;
            let most = if network.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most);
            return Ok(Self::Network(network, bits.ok_or_else(malformed)?));
        }
        // IFNAMSIZ, and what the kernel allows in a name.
        let is_name =
            (1..16).contains(&text.len()) && !text.contains(|c: char| c == ':' || c.is_whitespace() || c.is_control());
        // What begins with a digit and has dots is a mistyped address.
        let is_mistyped = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.');
        if is_name && !is_mistyped {
            return Ok(Self::Interface(text.into()));
        }
        Err(malformed())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::One(address) => write!(f, "{address}"),
            Self::Network(network, bits) => write!(f, "{network}/{bits}"),
            Self::Interface(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use if_addrs::{IfOperStatus, Ifv4Addr};

    use super::*;

    fn interface(name: &str, ip: &str, prefixlen: u8) -> Interface {
        let ip = ip.parse().unwrap();
        Interface {
            name: name.into(),
            addr: IfAddr::V4(Ifv4Addr { ip, netmask: std::net::Ipv4Addr::UNSPECIFIED, prefixlen, broadcast: None }),
            index: None,
            oper_status: IfOperStatus::Up,
            is_p2p: false,
        }
    }

    fn among(text: &str) -> Result<Vec<String>, AddressesError> {
        let all = vec![
            interface("lo", "127.0.0.1", 8),
            interface("eth1", "10.2.0.7", 16),
            interface("eth0", "192.168.1.7", 24),
            interface("eth2", "10.1.0.7", 16),
            interface("eth0", "169.254.3.3", 16),
        ];
        let found = text.parse::<Addresses>()?.among(all)?;
        Ok(found.iter().map(IpAddr::to_string).collect())
    }

    #[test]
    fn addresses_come_in_the_order_of_the_list_and_of_their_networks() {
        assert_eq!(among("auto").unwrap(), ["10.1.0.7", "10.2.0.7", "192.168.1.7"]);
        assert_eq!(among("eth0").unwrap(), ["192.168.1.7"]);
        assert_eq!(among("eth1, 10.0.0.0/8").unwrap(), ["10.2.0.7", "10.1.0.7"]);
        assert_eq!(among("127.0.0.1").unwrap(), ["127.0.0.1"]);
        let bare = "auto".parse::<Addresses>().unwrap();
        let found = bare.among(vec![interface("lo", "127.0.0.1", 8)]).unwrap();
        assert_eq!(found, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn what_is_not_here_is_named_beside_what_is() {
        for text in ["10.9.0.1", "172.16.0.0/12", "ib0"] {
            let error = among(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("10.2.0.7 (eth1)"), "{error}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0.300", "fd00::/200", "a b", "10.0.0.1:80", "auto,"] {
            assert!(matches!(among(text), Err(AddressesError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn the_addresses_of_this_host_can_be_listed() {
        assert!(!"auto".parse::<Addresses>().unwrap().resolve().unwrap().is_empty());
    }
}
