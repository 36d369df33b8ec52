//! The transport between hosts, as a user names it.

use core::fmt;
use core::str::FromStr;

/// The transport between hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Sealed datagrams over UDP: `udp`, and `shm`, which is about ranks of one host.
    #[default]
    Datagrams,
    /// libfabric: `ofi`, or `ofi:` and a provider.
    Libfabric {
        /// The provider, or a part of its name; `None`: the best that there is.
        provider: Option<String>,
    },
}

/// An unknown carrier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of shm, udp, ofi, ofi:PROVIDER (such as ofi:tcp; `mapwire doctor` lists the providers)")]
pub struct CarrierError(pub String);

impl FromStr for Carrier {
    type Err = CarrierError;

    fn from_str(text: &str) -> Result<Self, CarrierError> {
        let (word, provider) = match text.split_once(':') {
            None => (text, None),
            Some((word, provider)) => (word, Some(provider)),
        };
        match (word, provider) {
            ("shm" | "udp", None) => Ok(Self::Datagrams),
            ("ofi", None) => Ok(Self::Libfabric { provider: None }),
            ("ofi", Some(name)) if is_name(name) => Ok(Self::Libfabric { provider: Some(name.to_owned()) }),
            _ => Err(CarrierError(text.chars().take(64).collect())),
        }
    }
}

/// Names are such as `tcp;ofi_rxm`.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-;+".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(is_part)
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagrams => f.write_str("udp"),
            Self::Libfabric { provider: None } => f.write_str("ofi"),
            Self::Libfabric { provider: Some(name) } => write!(f, "ofi:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriers_are_read_as_they_are_written_and_others_refused_with_the_choices() {
        for text in ["udp", "ofi", "ofi:tcp", "ofi:tcp;ofi_rxm"] {
            assert_eq!(text.parse::<Carrier>().unwrap().to_string(), text);
        }
        assert_eq!("shm".parse(), Ok(Carrier::Datagrams));
        for text in ["", "tcp", "ofi:", "udp:eth0", "ofi:a b", "ofi:tcp:1"] {
            let error = text.parse::<Carrier>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("ofi:tcp"), "{error}");
        }
    }
}
