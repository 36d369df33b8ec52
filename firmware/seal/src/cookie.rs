//! Cookies: proof that a peer can be reached at the address it claims, without any state about it (RFC 9147 §5.1; WireGuard §5.3).
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | when it was made, in nanoseconds of its maker's clock |
//! | 8–23 | code of that time, the node it is for and its address, by a secret that its maker alone has |
//!
//! The time makes an initiate fresh: a peer that has accepted one with a cookie accepts none with an older cookie. So no clock and
//! no memory of the initiator is needed to tell a replayed initiate from the first of a restarted peer.

use mapwire_wire::NodeId;

use crate::address::{Address, MAX_ADDRESS_BYTES};
use crate::mac::{MAC_BYTES, MacKey};
use crate::wire::COOKIE_BYTES;

const _: () = assert!(COOKIE_BYTES == TIME_BYTES + MAC_BYTES);
const TIME_BYTES: usize = 8;
pub(crate) const LIFE_NS: u64 = 5_000_000_000;
/// Period for which one secret makes cookies.
const SECRET_LIFE_NS: u64 = 120_000_000_000;

pub(crate) struct Cookies {
    secret: MacKey,
    /// Since when the secret has been in use.
    since_ns: u64,
    former: Option<MacKey>,
}

impl Cookies {
    pub(crate) fn new(entropy: &mut dyn FnMut(&mut [u8])) -> Self {
        Self { secret: draw(entropy), since_ns: 0, former: None }
    }

    /// A cookie for `node` at `address`. Draws a new secret if the present one is old.
    pub(crate) fn make(
        &mut self,
        now_ns: u64,
        node: NodeId,
        address: &Address,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> [u8; COOKIE_BYTES] {
        if now_ns.saturating_sub(self.since_ns) >= SECRET_LIFE_NS {
            self.former = Some(core::mem::replace(&mut self.secret, draw(entropy)));
            self.since_ns = now_ns;
        }
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..TIME_BYTES].copy_from_slice(&now_ns.to_le_bytes());
        cookie[TIME_BYTES..].copy_from_slice(&self.secret.of(&covered(now_ns, node, address)));
        cookie
    }

    /// When `cookie` was made, provided that it was made here for `node` at `address`, within its lifetime.
    pub(crate) fn check(
        &self,
        now_ns: u64,
        node: NodeId,
        address: &Address,
        cookie: &[u8; COOKIE_BYTES],
    ) -> Option<u64> {
        let (time, code) = cookie.split_first_chunk()?;
        let made_ns = u64::from_le_bytes(*time);
        if now_ns.checked_sub(made_ns)? > LIFE_NS {
            return None;
        }
        let secret = if made_ns >= self.since_ns { &self.secret } else { self.former.as_ref()? };
        let genuine = secret.verifies(&covered(made_ns, node, address), code.try_into().ok()?);
        genuine.then_some(made_ns)
    }
}

fn draw(entropy: &mut dyn FnMut(&mut [u8])) -> MacKey {
    let mut key = [0; 32];
    entropy(&mut key);
    MacKey::new(&key)
}

/// Input of a cookie's code: time, node, length and bytes of the address.
fn covered(made_ns: u64, node: NodeId, address: &Address) -> [u8; 11 + MAX_ADDRESS_BYTES] {
    let mut bytes = [0; 11 + MAX_ADDRESS_BYTES];
    let from = address.as_bytes();
    bytes[..8].copy_from_slice(&made_ns.to_le_bytes());
    bytes[8..10].copy_from_slice(&node.0.to_le_bytes());
    bytes[10] = from.len() as u8;
    bytes[11..11 + from.len()].copy_from_slice(from);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(bytes: &[u8]) -> Address {
        Address::new(bytes).unwrap()
    }

    #[test]
    fn a_cookie_is_good_for_its_node_its_address_and_its_life_alone() {
        let mut counter = 0u8;
        let mut entropy = |bytes: &mut [u8]| {
            counter += 1;
            bytes.fill(counter);
        };
        let mut cookies = Cookies::new(&mut entropy);
        let (node, here) = (NodeId(3), address(b"here"));
        let cookie = cookies.make(7, node, &here, &mut entropy);
        assert_eq!(cookies.check(7, node, &here, &cookie), Some(7));
        assert_eq!(cookies.check(7 + LIFE_NS, node, &here, &cookie), Some(7));
        assert_eq!(cookies.check(8 + LIFE_NS, node, &here, &cookie), None);
        assert_eq!(cookies.check(6, node, &here, &cookie), None);
        assert_eq!(cookies.check(7, NodeId(4), &here, &cookie), None);
        assert_eq!(cookies.check(7, node, &address(b"here\0"), &cookie), None);
        for byte in 0..COOKIE_BYTES {
            let mut other = cookie;
            other[byte] ^= 1;
            assert_eq!(cookies.check(9, node, &here, &other), None, "byte {byte}");
        }
    }

    #[test]
    fn a_cookie_outlives_one_change_of_the_secret_and_not_two() {
        let mut counter = 0u8;
        let mut entropy = |bytes: &mut [u8]| {
            counter += 1;
            bytes.fill(counter);
        };
        let (node, here) = (NodeId(3), address(b"here"));
        let mut cookies = Cookies::new(&mut entropy);
        let made_ns = SECRET_LIFE_NS - 1;
        let cookie = cookies.make(made_ns, node, &here, &mut entropy);
        cookies.make(made_ns + 1, node, &here, &mut entropy);
        let later_ns = made_ns + 2;
        assert_eq!(cookies.check(later_ns, node, &here, &cookie), Some(made_ns));
        cookies.make(made_ns + 1 + SECRET_LIFE_NS, node, &here, &mut entropy);
        assert_eq!(cookies.check(later_ns, node, &here, &cookie), None);
    }
}
