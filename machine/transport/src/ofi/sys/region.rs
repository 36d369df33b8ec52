//! Memory that a provider may reach: registered, with rights and a key.

use core::ffi::c_void;
use core::ptr;
use std::sync::Arc;

use mapwire_host::mapping::Mapping;
use rustix::rand::{GetRandomFlags, getrandom};

use super::abi::*;
use super::domain::Domain;
use super::regions::{EpPointer, MrPointer, close};
use crate::ofi::OfiError;
use crate::ofi::rma::{RemoteMemory, RemoteRights};

/// Keys that are drawn before registration counts as refused: others may have one already.
const DRAWS: usize = 8;

/// Registered memory. It can be reached while this lives and the endpoint is open; no page of it may be moved meanwhile.
pub struct Region {
    domain: Arc<Domain>,
    number: usize,
    address: usize,
    bytes: usize,
    key: u64,
    base: u64,
    desc: *mut c_void,
    /// Keeps the memory mapped, if it was registered as a mapping.
    _memory: Option<Arc<Mapping>>,
}

// SAFETY: plain data, and a descriptor that is only handed to the domain, which any thread may use.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Address and key for peers.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { key: self.key, base: self.base, bytes: self.bytes as u64 }
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }

    /// Address of the byte at `offset`, and the descriptor. The range is inside.
    pub(super) fn place(&self, offset: usize) -> (*mut c_void, *mut c_void) {
        let address = ptr::with_exposed_provenance_mut(self.address + offset);
        (address, self.desc)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let mut open = self.domain.regions.lock();
        if let Some(region) = open.regions.get_mut(self.number).and_then(Option::take) {
            // SAFETY: open until here, and nobody finds it any more.
            unsafe { close(region.0.cast()) };
        }
    }
}

impl core::fmt::Debug for Region {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Region({:#x}, {} B)", self.address, self.bytes)
    }
}

/// Who may use registered memory.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Buffers,
    /// Peers with these rights; without any, stores and fetches of this process.
    Peers(RemoteRights),
}

/// Registers memory at an endpoint's domain.
#[derive(Clone)]
pub struct Registrar(pub(super) Arc<Domain>);

impl core::fmt::Debug for Registrar {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Registrar").field(&self.0.info().provider()).finish()
    }
}

impl Registrar {
    /// Registers `bytes` of a mapping from `offset` on, at least one. Peers with its key have `rights`; without any it is for operations
    /// of this process, as source and target.
    ///
    /// # Errors
    /// The provider refuses, or the endpoint is closed.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn register(
        &self,
        memory: &Arc<Mapping>,
        offset: usize,
        bytes: usize,
        rights: RemoteRights,
    ) -> Result<Region, OfiError> {
        let address = memory.at(offset, bytes);
        // SAFETY: the region keeps the mapping, whose bytes others may change at any time.
        let mut region = unsafe { self.register_for(address, bytes, Access::Peers(rights)) }?;
        region._memory = Some(Arc::clone(memory));
        Ok(region)
    }

    /// Registers memory of this process for `access`.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    ///
    /// # Safety
    /// The bytes stay mapped, for stores too if `access` or reads need it, while the region lives, and nobody assumes anything of
    /// their values.
    pub(super) unsafe fn register_for(
        &self,
        address: *mut u8,
        bytes: usize,
        access: Access,
    ) -> Result<Region, OfiError> {
        // Only buffers have FI_SEND: some providers let peers read what may be sent.
        let access = match access {
            Access::Buffers => FI_SEND | FI_RECV,
            Access::Peers(RemoteRights::NONE) => FI_READ | FI_WRITE,
            Access::Peers(RemoteRights { store, fetch }) => {
                (u64::from(store) * FI_REMOTE_WRITE) | (u64::from(fetch) * FI_REMOTE_READ)
            }
        };
        let domain = &self.0;
        let info = domain.info();
        let attr = info.domain_attr();
        let (mode, key_bytes) = (attr.mr_mode, attr.mr_key_size.clamp(1, 8));
        let mut open = domain.regions.lock();
        let Some(EpPointer(endpoint)) = open.endpoint else {
            return Err(domain.error("fi_mr_reg at a closed endpoint", libc::EBADF));
        };
        let mut region = ptr::null_mut();
        let mut code = -libc::ENOKEY;
        for _ in 0..DRAWS {
            // SAFETY: the domain is open; the caller answers for the memory; the result goes to `region`.
            code = unsafe {
                let (fid, memory) = (domain.domain.cast(), address.cast_const().cast());
                let (key, none) = (draw(key_bytes), ptr::null_mut());
                call!((*(*domain.domain).mr), reg(fid, memory, bytes, access, 0, key, 0, &mut region, none))
            };
            if code != -libc::ENOKEY || mode & FI_MR_PROV_KEY != 0 {
                break;
            }
        }
        domain.check("fi_mr_reg", code)?;
        if mode & FI_MR_ENDPOINT != 0 {
            // SAFETY: both are open, and the region is closed before the endpoint.
            let code = unsafe { bind(region.cast(), endpoint.cast()) };
            if let Err(error) = domain.check("fi_mr_bind", code) {
                // SAFETY: nobody else knows it.
                unsafe { close(region.cast()) };
                return Err(error);
            }
        }
        let number = open.regions.iter().position(Option::is_none);
        let number = number.unwrap_or_else(|| {
            open.regions.push(None);
            open.regions.len() - 1
        });
        open.regions[number] = Some(MrPointer(region));
        // SAFETY: just opened, and closed under the lock that is held.
        let (key, desc) = unsafe { ((*region).key, (*region).mem_desc) };
        let address = address.expose_provenance();
        let is_virtual = mode & FI_MR_VIRT_ADDR != 0;
        Ok(Region {
            domain: Arc::clone(domain),
            number,
            address,
            bytes,
            key,
            base: if is_virtual { address as u64 } else { 0 },
            desc,
            _memory: None,
        })
    }
}

/// Binds a region to its endpoint and enables it.
///
/// # Safety
/// Both are open.
unsafe fn bind(region: *mut Fid, endpoint: *mut Fid) -> i32 {
    // SAFETY: this function's contract; what is open has its table.
    unsafe {
        let ops = &*(*region).ops;
        match call!(ops, bind(region, endpoint, 0)) {
            0 => call!(ops, control(region, FI_ENABLE, ptr::null_mut())),
            code => code,
        }
    }
}

/// A random key of so many bytes: knowing it is the right to reach the memory.
fn draw(bytes: usize) -> u64 {
    let mut key = [0; 8];
    // It cannot fail for so few bytes; a key of zeros would be refused as known already, or be as good as another.
    let _ = getrandom(&mut key[..bytes], GetRandomFlags::empty());
    u64::from_le_bytes(key)
}
