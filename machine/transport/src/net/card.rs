//! The card by which a rank tells other hosts how to reach it.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | 1: by datagrams |
//! | 1 | addresses, 1 to 8 |
//! | 2–33 | public key |
//! | 34… | each address: family (4 or 6), port (little-endian), 4 or 16 bytes |
//!
//! | bytes | field |
//! |---|---|
//! | 0 | 2: by libfabric |
//! | 1… | the name of its endpoint, see [`Ofi::name`](crate::ofi::Ofi::name) |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::rendezvous::Card;

/// Addresses of one rank at most.
pub const MAX_ADDRESSES: usize = 8;

const VERSION: u8 = 1;
const LIBFABRIC: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Where the rank takes datagrams, the preferred address first.
    pub addresses: Vec<SocketAddr>,
    /// The public half of the key by which it proves who it is.
    pub key: [u8; 32],
}

/// Why a card cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    #[error("a card of version {0}, not {VERSION}: all ranks must use one release of mapwire")]
    Version(u8),
    /// It has no address that one of this rank's reaches.
    #[error("no address of the same family, IPv4 or IPv6, on both sides: name more of them (MAPWIRE_ADDRESSES)")]
    Family,
    /// The ranks use different transports between hosts.
    #[error(
        "it uses {theirs} between hosts and this rank {ours}: start all ranks with the same --transport (MAPWIRE_TRANSPORT)"
    )]
    Carrier {
        /// What the card is of.
        theirs: &'static str,
        ours: &'static str,
    },
    /// This rank's endpoint cannot reach that of the card.
    #[error("its libfabric endpoint is of no use here: {0}")]
    Endpoint(&'static str),
    /// It is truncated, too long, or has an impossible field.
    #[error("malformed card")]
    Malformed,
}

impl Contact {
    /// The card that says it, with the first [`MAX_ADDRESSES`] addresses.
    #[must_use]
    pub fn to_card(&self) -> Card {
        let addresses = &self.addresses[..self.addresses.len().min(MAX_ADDRESSES)];
        let mut bytes = vec![VERSION, addresses.len() as u8];
        bytes.extend(self.key);
        for address in addresses {
            let (wire, length) = bytes_of(address);
            bytes.push(if address.is_ipv4() { 4 } else { 6 });
            bytes.extend(&wire[..length]);
        }
        Card::new(&bytes).expect("eight addresses fit")
    }

    /// Reads a card, which another process has written.
    ///
    /// # Errors
    /// [`CardError`].
    pub fn from_card(card: &Card) -> Result<Self, CardError> {
        let (&[version, count], rest) = card.bytes().split_first_chunk().ok_or(CardError::Malformed)?;
        if version == LIBFABRIC {
            return Err(CardError::Carrier { theirs: "libfabric", ours: "datagrams" });
        }
        if version != VERSION {
            return Err(CardError::Version(version));
        }
        let (&key, mut rest) = rest.split_first_chunk().ok_or(CardError::Malformed)?;
        if count == 0 || usize::from(count) > MAX_ADDRESSES {
            return Err(CardError::Malformed);
        }
        let mut addresses = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (address, after) = read_address(rest).ok_or(CardError::Malformed)?;
            addresses.push(address);
            rest = after;
        }
        match rest {
            [] => Ok(Self { addresses, key }),
            _ => Err(CardError::Malformed),
        }
    }
}

/// The card of an endpoint of libfabric by its name.
pub(crate) fn card_of_endpoint(name: &[u8]) -> Card {
    let bytes = [&[LIBFABRIC], name].concat();
    Card::new(&bytes).expect("names are shorter than cards")
}

/// The name of the endpoint in a card, which another process has written.
pub(crate) fn endpoint_of_card(card: &Card) -> Result<&[u8], CardError> {
    match card.bytes() {
        [LIBFABRIC, name @ ..] => Ok(name),
        [VERSION, ..] => Err(CardError::Carrier { theirs: "datagrams", ours: "libfabric" }),
        [other, ..] => Err(CardError::Version(*other)),
        [] => Err(CardError::Malformed),
    }
}

/// Port (little-endian) and IP address, and how many bytes they take: also what the cookies of handshakes bind.
pub(super) fn bytes_of(address: &SocketAddr) -> ([u8; 18], usize) {
    let mut bytes = [0; 18];
    bytes[..2].copy_from_slice(&address.port().to_le_bytes());
    match address.ip() {
        IpAddr::V4(ip) => bytes[2..6].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes[2..].copy_from_slice(&ip.octets()),
    }
    (bytes, if address.is_ipv4() { 6 } else { 18 })
}

/// Reads what [`bytes_of`] writes.
pub(super) fn address_of(bytes: &[u8]) -> Option<SocketAddr> {
    let (&port, ip) = bytes.split_first_chunk()?;
    let ip: IpAddr = match ip.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(ip).ok()?).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?).into(),
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes(port)))
}

fn read_address(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (family, rest) = bytes.split_first()?;
    let (address, rest) = match family {
        4 => rest.split_at_checked(6)?,
        6 => rest.split_at_checked(18)?,
        _ => return None,
    };
    let address = address_of(address)?;
    let is_possible = address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast();
    is_possible.then_some((address, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contact() -> Contact {
        Contact { addresses: vec!["10.0.0.1:5000".parse().unwrap(), "[fd00::1]:5001".parse().unwrap()], key: [9; 32] }
    }

    #[test]
    fn a_card_reads_back_as_it_was_written() {
        let contact = contact();
        assert_eq!(Contact::from_card(&contact.to_card()), Ok(contact));
    }

    #[test]
    fn a_card_of_another_version_is_told_from_a_malformed_one() {
        let mut bytes = contact().to_card().bytes().to_vec();
        bytes.push(0);
        let longer = Card::new(&bytes).unwrap();
        assert_eq!(Contact::from_card(&longer), Err(CardError::Malformed));
        bytes[0] = 3;
        let other = Card::new(&bytes).unwrap();
        assert_eq!(Contact::from_card(&other), Err(CardError::Version(3)));
        assert_eq!(endpoint_of_card(&other), Err(CardError::Version(3)));
    }

    #[test]
    fn cards_of_datagrams_and_of_libfabric_are_told_apart_by_both() {
        let far = card_of_endpoint(b"name");
        assert_eq!(endpoint_of_card(&far), Ok(&b"name"[..]));
        for error in [Contact::from_card(&far).unwrap_err(), endpoint_of_card(&contact().to_card()).unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("MAPWIRE_TRANSPORT") && text.contains("libfabric"), "{text}");
        }
    }

    #[test]
    fn a_card_that_names_no_or_an_impossible_address_is_refused() {
        for address in ["0.0.0.0:1", "10.0.0.1:0", "224.0.0.1:7", "[::]:7"] {
            let addresses = vec![address.parse().unwrap()];
            let card = Contact { addresses, ..contact() }.to_card();
            assert_eq!(Contact::from_card(&card), Err(CardError::Malformed), "{address}");
        }
        let none = Contact { addresses: vec![], ..contact() };
        assert_eq!(Contact::from_card(&none.to_card()), Err(CardError::Malformed));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let card = Card::new(&bytes).unwrap();
            if let Ok(contact) = Contact::from_card(&card) {
                prop_assert_eq!(contact.to_card(), card);
            }
        }
    }
}
