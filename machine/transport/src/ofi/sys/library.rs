//! Loads libfabric.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};

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

    /// Text for an error of a call.
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
    let not_installed = |error: libloading::Error| OfiError::NotInstalled { reason: error.to_string() };
    // What Debian's build loads too, libinfinipath, takes the signals of faults for itself.
    let _kept = Handlers::keep();
    // SAFETY: loads a shared library by its name as the linker would; libfabric's initialisers ask nothing of the program.
    let object = unsafe { Object::open(Some("libfabric.so.1"), RTLD_NOW | RTLD_LOCAL) }.map_err(not_installed)?;
    // Its threads and exit handlers stay, also where a function is missing.
    let object = core::mem::ManuallyDrop::new(object);
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the type of each field below is that of the function's declaration in `rdma/fabric.h` and `rdma/fi_errno.h`; the
            // library is never unloaded, so the pointer stays valid.
            *unsafe { object.get($name) }.map_err(not_installed)?
        };
    }
    Ok(Library {
        version: function!(b"fi_version\0"),
        getinfo: function!(b"fi_getinfo\0"),
        freeinfo: function!(b"fi_freeinfo\0"),
        dupinfo: function!(b"fi_dupinfo\0"),
        fabric: function!(b"fi_fabric\0"),
        strerror: function!(b"fi_strerror\0"),
    })
}

/// Handlers of fault signals, restored on drop.
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
