//! A provider at one interface, opened.

use core::ffi::c_int;
use core::ptr;

use super::abi::*;
use super::info::{Info, InfoList};
use super::library::Library;
use super::regions::{Regions, close};
use crate::ofi::OfiError;

/// The fabric and the domain. Closed when the last thing that was opened in it is gone.
pub(super) struct Domain {
    pub(super) domain: *mut FidDomain,
    pub(super) regions: Regions,
    pub(super) fabric: *mut FidFabric,
    info: InfoList,
}

// SAFETY: the domain is asked for with FI_THREAD_SAFE: any thread may call it at any time. What the pointers name lives as long as this.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(super) fn open(offered: Info<'_>) -> Result<Self, OfiError> {
        let mut this = Self {
            domain: ptr::null_mut(),
            regions: Regions::default(),
            fabric: ptr::null_mut(),
            info: offered.to_list()?,
        };
        let (library, raw) = (this.library(), this.info().raw());
        // SAFETY: `raw` is a whole fi_info that lives as long as `this`; results go to fields of `this`, which closes them.
        unsafe {
            let code = (library.fabric)((*raw).fabric_attr, &mut this.fabric, ptr::null_mut());
            check(library, "fi_fabric", code)?;
            let code = call!((*(*this.fabric).ops), domain(this.fabric, raw, &mut this.domain, ptr::null_mut()));
            check(library, "fi_domain", code)?;
        }
        Ok(this)
    }

    pub(super) fn info(&self) -> Info<'_> {
        self.info.iter().next().expect("it was made with one")
    }

    pub(super) fn library(&self) -> &'static Library {
        self.info().library
    }

    #[cold]
    pub(super) fn error(&self, call: &'static str, code: c_int) -> OfiError {
        OfiError::call(self.library(), call, code)
    }

    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), OfiError> {
        check(self.library(), call, code)
    }
}

fn check(library: &Library, call: &'static str, code: c_int) -> Result<(), OfiError> {
    if code == 0 {
        return Ok(());
    }
    Err(OfiError::call(library, call, -code))
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: whatever was opened in the domain holds it, and is gone.
        unsafe {
            close(self.domain.cast());
            close(self.fabric.cast());
        }
    }
}
