//! Internet addresses in the form that the kernel takes.

use core::mem::{MaybeUninit, size_of};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Bytes of the longest address.
pub(super) const RAW_BYTES: libc::socklen_t = size_of::<RawAddress>() as libc::socklen_t;

impl RawAddress {
    /// No address, for the kernel to write one.
    #[inline(always)]
    pub(super) fn zeroed() -> Self {
        // SAFETY: all fields of both are integers, of which zero is a value.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// `address`, and its length in bytes.
    #[inline(always)]
    pub(super) fn new(address: &SocketAddr) -> (Self, libc::socklen_t) {
        let mut raw = Self::zeroed();
        match address {
            SocketAddr::V4(address) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(address) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                (raw, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address that the kernel wrote, `bytes` long. `None` if it is of another family.
    #[inline(always)]
    pub(super) fn read(&self, bytes: libc::socklen_t) -> Option<SocketAddr> {
        // SAFETY: all bytes are initialised, by `zeroed`, and any bits are an integer. The family stands at the same place in both.
        let (v4, v6) = unsafe { (&self.v4, &self.v6) };
        match i32::from(v4.sin_family) {
            libc::AF_INET if bytes as usize >= size_of::<libc::sockaddr_in>() => {
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 if bytes as usize >= size_of::<libc::sockaddr_in6>() => {
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_either_family_reads_back_as_it_was_written() {
        for text in ["10.1.2.3:4567", "[fd00::1:2]:8901", "[fe80::1%3]:2"] {
            let address: SocketAddr = text.parse().unwrap();
            let (raw, bytes) = RawAddress::new(&address);
            assert_eq!(raw.read(bytes), Some(address));
            assert_eq!(raw.read(bytes - 1), None, "cut short");
        }
        assert_eq!(RawAddress::zeroed().read(RAW_BYTES), None);
    }
}
