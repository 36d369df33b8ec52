//! A library with the functions of `peer.h`, loaded.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::rc::Rc;

use crate::Error;
use crate::memory::Shared;

#[repr(C)]
struct Host {
    rank: c_int,
    room: usize,
    most_bytes: usize,
    place: *const c_char,
    exchange: extern "C" fn(*const c_void, usize, *mut c_void),
}

thread_local! {
    static SHARED: RefCell<Option<Rc<Exchange>>> = const { RefCell::new(None) };
}

/// What `exchange` of `peer.h` uses while a library opens.
struct Exchange(*const Shared);

extern "C" fn exchange(mine: *const c_void, bytes: usize, theirs: *mut c_void) {
    SHARED.with_borrow(|shared| {
        if let Some(shared) = shared {
            // SAFETY: set only while `Peer::load` holds the memory; the library passes what `peer.h` says.
            unsafe {
                let mine = std::slice::from_raw_parts(mine.cast(), bytes);
                (*shared.0).exchange(mine, theirs.cast());
            }
        }
    });
}

pub(crate) struct Peer {
    ways: Vec<String>,
    put: unsafe extern "C" fn(c_uint, *const c_void, usize, usize, u64) -> c_int,
    take: unsafe extern "C" fn(c_uint, usize, usize, u64) -> *const c_void,
    progress: unsafe extern "C" fn(),
    close: unsafe extern "C" fn(),
}

impl Peer {
    pub(crate) fn load(
        path: &str,
        shared: &Shared,
        rank: usize,
        room: usize,
        most_bytes: usize,
        place: &str,
    ) -> Result<Self, Error> {
        let (path, place) = (CString::new(path)?, CString::new(place)?);
        // SAFETY: the library is one of those beside this program. RTLD_GLOBAL: Open MPI loads plugins that need its symbols.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            // SAFETY: dlopen has just failed, so there is a message.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(why.to_string_lossy().into());
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is open and stays so.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol).ok_or_else(|| format!("{path:?} has no {name:?}"))
        };
        let host = Host { rank: rank as c_int, room, most_bytes, place: place.as_ptr(), exchange };
        SHARED.set(Some(Rc::new(Exchange(shared))));
        // SAFETY: the types are those of `peer.h`.
        let (opened, names, this) = unsafe {
            let open: extern "C" fn(*const Host) -> c_int = std::mem::transmute(symbol(c"peer_open")?);
            let ways: extern "C" fn() -> *const *const c_char = std::mem::transmute(symbol(c"peer_ways")?);
            let this = Self {
                ways: Vec::new(),
                put: std::mem::transmute::<*mut c_void, _>(symbol(c"peer_put")?),
                take: std::mem::transmute::<*mut c_void, _>(symbol(c"peer_take")?),
                progress: std::mem::transmute::<*mut c_void, _>(symbol(c"peer_progress")?),
                close: std::mem::transmute::<*mut c_void, _>(symbol(c"peer_close")?),
            };
            (open(&host), ways(), this)
        };
        SHARED.set(None);
        if opened != 0 {
            return Err("the library could not be opened".into());
        }
        // It may keep the name.
        std::mem::forget(place);
        let mut ways = Vec::new();
        // SAFETY: an array of strings that ends with NULL, as `peer.h` says.
        unsafe {
            let mut name = names;
            while !(*name).is_null() {
                ways.push(CStr::from_ptr(*name).to_string_lossy().into_owned());
                name = name.add(1);
            }
        }
        Ok(Self { ways, ..this })
    }

    pub(crate) fn ways(&self) -> Vec<String> {
        self.ways.clone()
    }

    #[inline(always)]
    pub(crate) fn put(&self, way: u64, data: &[u8], at: usize, number: u64) -> Result<(), Error> {
        let (from, bytes) = (data.as_ptr().cast(), data.len());
        // SAFETY: a way of the library, and memory that stays for the call.
        match unsafe { (self.put)(way as c_uint, from, bytes, at, number) } {
            0 => Ok(()),
            code => Err(format!("peer_put failed with {code}").into()),
        }
    }

    #[inline(always)]
    pub(crate) fn take(&self, way: u64, bytes: usize, at: usize, number: u64) -> Result<&[u8], Error> {
        // SAFETY: a way of the library.
        let message = unsafe { (self.take)(way as c_uint, bytes, at, number) };
        if message.is_null() {
            return Err("peer_take failed".into());
        }
        // SAFETY: a complete message, which stays until the next call.
        Ok(unsafe { std::slice::from_raw_parts(message.cast(), bytes) })
    }

    pub(crate) fn progress(&self) {
        // SAFETY: the library is open.
        unsafe { (self.progress)() }
    }

    pub(crate) fn close(&self) {
        // SAFETY: the library is open, and is not used after this.
        unsafe { (self.close)() }
    }
}
