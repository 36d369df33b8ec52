//! Addresses of stores.

use std::fmt;
use std::str::FromStr;

use crate::NamesError;

/// The port of `mapwire serve`.
pub const PORT: u16 = 6277;

/// Default port for etcd's clients.
const ETCD_PORT: u16 = 2379;

/// A host's name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Name, IPv4 address, or IPv6 address without brackets.
    pub host: String,
    pub port: u16,
}

/// Address of a store: `mapwire://host:port` or `etcd://host:port,host:port…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// A server of `mapwire serve`.
    Server(HostPort),
    /// The members of an etcd cluster, any of which will do.
    Etcd(Vec<HostPort>),
}

impl Default for StoreAddress {
    /// A server on this host, at its default port.
    fn default() -> Self {
        Self::Server(HostPort { host: "127.0.0.1".into(), port: PORT })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "mapwire://{server}"),
            Self::Etcd(members) => {
                let members: Vec<String> = members.iter().map(ToString::to_string).collect();
                write!(f, "etcd://{}", members.join(","))
            }
        }
    }
}

impl FromStr for StoreAddress {
    type Err = NamesError;

    fn from_str(text: &str) -> Result<Self, NamesError> {
        let wrong = || NamesError::Address { given: text.chars().take(200).collect() };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        match scheme {
            "mapwire" => host_port(rest, PORT).map(Self::Server).ok_or_else(wrong),
            "etcd" => {
                let members = rest.split(',').map(|member| host_port(member, ETCD_PORT));
                let members: Option<Vec<HostPort>> = members.collect();
                members.map(Self::Etcd).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

fn host_port(text: &str, usual: u16) -> Option<HostPort> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            match rest {
                "" => (host, None),
                _ => (host, Some(rest.strip_prefix(':')?)),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if host.is_empty() || host.len() > 255 || !host.bytes().all(is_part) {
        return None;
    }
    let port = match port {
        None => usual,
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
    };
    let host = host.to_owned();
    Some(HostPort { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for (text, written) in [
            ("mapwire://node1:7000", "mapwire://node1:7000"),
            ("mapwire://10.0.0.1", "mapwire://10.0.0.1:6277"),
            ("mapwire://[fd00::1]:7000/", "mapwire://[fd00::1]:7000"),
            ("etcd://a,b:1,[::1]", "etcd://a:2379,b:1,[::1]:2379"),
        ] {
            let address: StoreAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(written.parse::<StoreAddress>().unwrap(), address);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_one_looks_like() {
        for text in [
            "",
            "node1",
            "http://node1",
            "mapwire://",
            "mapwire://a:0",
            "mapwire://a:x",
            "mapwire://a:1:2",
            "mapwire://[::1",
            "mapwire://[nothex]:1",
            "mapwire://a b",
            "mapwire://a,b",
            "mapwire://user@a",
            "etcd://a,,b",
            "etcd://",
        ] {
            let error = text.parse::<StoreAddress>().unwrap_err().to_string();
            assert!(error.contains("mapwire://HOST:PORT"), "{text}: {error}");
        }
    }
}
