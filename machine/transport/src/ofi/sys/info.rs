//! What libfabric offers.

use core::ffi::{CStr, c_char};
use core::ptr;
use std::ffi::CString;

use super::abi::*;
use super::library::Library;
use crate::ofi::OfiError;

/// Required abilities of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ofi) enum Needs {
    Messages,
    Rma,
    /// The same, and messages, stores and fetches come behind the stores before them.
    OrderedRma,
}

/// Messages, stores and fetches are ordered behind stores.
const STORES_FIRST: u64 = FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_RAW;

impl Needs {
    /// From the most to the least.
    pub(in crate::ofi) const ALL: [Self; 3] = [Self::OrderedRma, Self::Rma, Self::Messages];

    fn has_rma(self) -> bool {
        self != Self::Messages
    }

    fn order(self) -> u64 {
        match self {
            Self::OrderedRma => FI_ORDER_SAS | STORES_FIRST,
            Self::Rma | Self::Messages => FI_ORDER_SAS,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::ofi) struct Wanted<'a> {
    /// The provider; `None` for all of them.
    pub(in crate::ofi) provider: Option<&'a str>,
    /// The address of an interface of this host.
    pub(in crate::ofi) source: Option<&'a str>,
    /// Required abilities; `None`: report all that there are.
    pub(in crate::ofi) needs: Option<Needs>,
}

/// Matching interfaces, best first.
pub(in crate::ofi) struct InfoList {
    first: *mut RawInfo,
    library: &'static Library,
}

// SAFETY: a list of plain memory that this value owns, which no other thread knows.
unsafe impl Send for InfoList {}

impl InfoList {
    /// Asks for reliable endpoints that keep the order of messages. Empty if nothing fits.
    ///
    /// # Errors
    /// The call fails for any other reason.
    pub(in crate::ofi) fn ask(library: &'static Library, wanted: Wanted<'_>) -> Result<Self, OfiError> {
        let hints = Self::hints(library, wanted)?;
        let source = wanted.source.map(CString::new).transpose();
        let source = source.map_err(|_| OfiError::NoProvider {
            provider: wanted.provider.unwrap_or("any").to_owned(),
            source_address: wanted.source.map(str::to_owned),
            found: Vec::new(),
        })?;
        let (node, flags) = match &source {
            Some(source) => (source.as_ptr(), FI_SOURCE | FI_NUMERICHOST),
            None => (ptr::null(), 0),
        };
        let mut first = ptr::null_mut();
        // SAFETY: strings end in zero, `hints` is a whole fi_info, and `first` takes the result.
        let code = unsafe { (library.getinfo)(API_VERSION, node, ptr::null(), flags, hints.first, &mut first) };
        let list = Self { first, library };
        match -code {
            0 => Ok(list),
            FI_ENODATA | FI_ENOSYS => Ok(list),
            code => Err(OfiError::call(library, "fi_getinfo", code)),
        }
    }

    fn hints(library: &'static Library, wanted: Wanted<'_>) -> Result<Self, OfiError> {
        // SAFETY: null asks for an fi_info of zeros with all of its parts.
        let first = unsafe { (library.dupinfo)(ptr::null()) };
        if first.is_null() {
            return Err(OfiError::call(library, "fi_dupinfo", libc::ENOMEM));
        }
        let hints = Self { first, library };
        // SAFETY: the library has just allocated the structure and its parts, and nobody else knows them. What strdup returns is freed
        // with them.
        unsafe {
            let info = &mut *first;
            info.caps = match wanted.needs {
                None => 0,
                Some(Needs::Messages) => FI_MSG,
                Some(Needs::Rma | Needs::OrderedRma) => {
                    FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE
                }
            };
            if wanted.needs.is_some_and(Needs::has_rma) {
                // What an operation is asked for.
                (*info.tx_attr).op_flags = FI_DELIVERY_COMPLETE;
            }
            info.mode = FI_CONTEXT | FI_CONTEXT2;
            (*info.ep_attr).kind = FI_EP_RDM;
            let order = wanted.needs.map_or(FI_ORDER_SAS, Needs::order);
            (*info.tx_attr).msg_order = order;
            (*info.rx_attr).msg_order = order;
            let domain = &mut *info.domain_attr;
            domain.threading = FI_THREAD_SAFE;
            domain.resource_mgmt = FI_RM_ENABLED;
            domain.mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
            // With virtual addresses shm reads the peer's memory without a look at key, range and rights.
            if wanted.provider != Some("shm") {
                domain.mr_mode |= FI_MR_VIRT_ADDR;
            }
            if let Some(provider) = wanted.provider.and_then(|name| CString::new(name).ok()) {
                (*info.fabric_attr).prov_name = libc::strdup(provider.as_ptr());
            }
        }
        Ok(hints)
    }

    pub(in crate::ofi) fn iter(&self) -> impl Iterator<Item = Info<'_>> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            // SAFETY: null, or an element of the list, which lives as long as `self`.
            let raw = unsafe { next.as_ref() }?;
            next = raw.next;
            Some(Info { raw, library: self.library })
        })
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: the list came from the library and nothing refers to it any more.
            unsafe { (self.library.freeinfo)(self.first) };
        }
    }
}

/// One thing that libfabric offers.
#[derive(Clone, Copy)]
pub(in crate::ofi) struct Info<'a> {
    raw: &'a RawInfo,
    pub(super) library: &'static Library,
}

impl Info<'_> {
    pub(super) fn raw(&self) -> *mut RawInfo {
        ptr::from_ref(self.raw).cast_mut()
    }

    /// A copy of its own, without flags that all operations have.
    pub(super) fn to_list(self) -> Result<InfoList, OfiError> {
        // SAFETY: `raw` is a whole fi_info.
        let first = unsafe { (self.library.dupinfo)(self.raw()) };
        if first.is_null() {
            return Err(OfiError::call(self.library, "fi_dupinfo", libc::ENOMEM));
        }
        // SAFETY: as in `hints`. Messages are done when they are out of their buffers.
        unsafe { (*(*first).tx_attr).op_flags = 0 };
        Ok(InfoList { first, library: self.library })
    }

    pub(super) fn domain_attr(&self) -> &DomainAttr {
        // SAFETY: the library allocates the parts with the whole, and frees them with it.
        unsafe { &*self.raw.domain_attr }
    }

    fn fabric_attr(&self) -> &FabricAttr {
        // SAFETY: as above.
        unsafe { &*self.raw.fabric_attr }
    }

    /// What sends, stores and fetches can do.
    fn sending(&self) -> &TxAttr {
        // SAFETY: as above.
        unsafe { &*self.raw.tx_attr }
    }

    fn receiving(&self) -> &RxAttr {
        // SAFETY: as above.
        unsafe { &*self.raw.rx_attr }
    }

    pub(in crate::ofi) fn provider(&self) -> String {
        text(self.fabric_attr().prov_name)
    }

    /// Version of the provider, major and minor.
    pub(in crate::ofi) fn provider_version(&self) -> (u32, u32) {
        let version = self.fabric_attr().prov_version;
        (version >> 16, version & 0xffff)
    }

    pub(in crate::ofi) fn domain(&self) -> String {
        text(self.domain_attr().name)
    }

    /// Whether memory of peers can be stored to and fetched from.
    pub(in crate::ofi) fn has_rma(&self) -> bool {
        self.raw.caps & FI_RMA != 0
    }

    /// Whether messages, stores and fetches come behind the stores before them.
    pub(in crate::ofi) fn orders_stores(&self) -> bool {
        let order = self.sending().msg_order & self.receiving().msg_order;
        self.has_rma() && order & STORES_FIRST == STORES_FIRST
    }

    /// Bytes of the longest message.
    pub(in crate::ofi) fn max_message_bytes(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.raw.ep_attr).max_msg_size }
    }

    /// Sends and writes that may be under way.
    pub(in crate::ofi) fn transmits(&self) -> usize {
        self.sending().size
    }

    /// Pieces of local memory in one operation.
    pub(in crate::ofi) fn pieces(&self) -> usize {
        self.sending().iov_limit
    }

    /// Receives that may be posted.
    pub(in crate::ofi) fn receives(&self) -> usize {
        self.receiving().size
    }
}

fn text(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a name in a list of the library ends in a zero.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
