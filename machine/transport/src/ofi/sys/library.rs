//! Loads libfabric.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use std::sync::OnceLock;

use super::abi::{FabricAttr, FidFabric, RawInfo};
use crate::ofi::OfiError;

pub(super) type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const RawInfo, *mut *mut RawInfo) -> c_int;

/// The functions that libfabric has symbols for. It stays loaded: its threads and handlers may run until the end of the process.
pub(in crate::ofi) struct Library {
    pub(super) version: unsafe extern "C" fn() -> u32,
    pub(super) getinfo: GetInfo,
    pub(super) freeinfo: unsafe extern "C" fn(*mut RawInfo),
    pub(super) dupinfo: unsafe extern "C" fn(*const RawInfo) -> *mut RawInfo,
    pub(super) fabric: unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
    pub(super) strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Library {
    /// Loads the library, once.
    ///
    /// # Errors
    /// [`OfiError::NotInstalled`], with the loader's reason.
    pub(in crate::ofi) fn load() -> Result<&'static Self, OfiError> {
        static LIBRARY: OnceLock<Result<Library, OfiError>> = OnceLock::new();
        LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// Its own version, major and minor.
    pub(in crate::ofi) fn version(&self) -> (u32, u32) {
        // SAFETY: fi_version takes nothing and returns a constant.
        let version = unsafe { (self.version)() };
        (version >> 16, version & 0xffff)
    }

    /// What an error of a call means.
    pub(in crate::ofi) fn error_text(&self, code: c_int) -> String {
        // SAFETY: fi_strerror takes any number and returns a static string, or none.
        let text = unsafe { (self.strerror)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: not null, and ends in a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn open() -> Result<Library, OfiError> {
    // What Debian's build loads too, libinfinipath, takes the signals of faults for itself.
    let _kept = Handlers::keep();
    // SAFETY: loads a shared library by its name as the linker would; libfabric's initialisers ask nothing of the program.
    let handle = unsafe { libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return Err(not_installed());
    }
    // SAFETY: each type is that of the function's declaration in `rdma/fabric.h` and `rdma/fi_errno.h`, and a function pointer has the
    // size of a symbol's address.
    unsafe {
        Ok(Library {
            version: transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(symbol(handle, c"fi_version")?),
            getinfo: transmute::<*mut c_void, GetInfo>(symbol(handle, c"fi_getinfo")?),
            freeinfo: transmute::<*mut c_void, unsafe extern "C" fn(*mut RawInfo)>(symbol(handle, c"fi_freeinfo")?),
            dupinfo: transmute::<*mut c_void, unsafe extern "C" fn(*const RawInfo) -> *mut RawInfo>(symbol(
                handle,
                c"fi_dupinfo",
            )?),
            fabric: transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int,
            >(symbol(handle, c"fi_fabric")?),
            strerror: transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(symbol(
                handle,
                c"fi_strerror",
            )?),
        })
    }
}

/// What signals of faults do, which is restored when this is dropped.
struct Handlers([(c_int, libc::sigaction); 7]);

impl Handlers {
    fn keep() -> Self {
        let of = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGABRT, libc::SIGFPE, libc::SIGINT, libc::SIGTERM];
        Self(of.map(|signal| {
            // SAFETY: all zeros is a value of this structure, and the call writes one.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                libc::sigaction(signal, core::ptr::null(), &mut action);
                (signal, action)
            }
        }))
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, action) in &self.0 {
            // SAFETY: an action that was in force before.
            unsafe { libc::sigaction(*signal, action, core::ptr::null_mut()) };
        }
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, OfiError> {
    // SAFETY: `library` is a handle of dlopen that is never closed.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(not_installed());
    }
    Ok(address)
}

/// With what the loader last complained of.
fn not_installed() -> OfiError {
    // SAFETY: dlerror returns null or a string of this thread that lives until its next call of the loader.
    let reason = unsafe { libc::dlerror() };
    let reason = if reason.is_null() {
        "the loader gives no reason".to_owned()
    } else {
        // SAFETY: not null, and ends in a zero.
        unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
    };
    OfiError::NotInstalled { reason }
}
