//! A message library with the functions of `peer.h`, loaded.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use crate::BenchError;
use crate::loops::Meeting;
use crate::words::Words;

/// Bytes that each process passes to the other while a library opens, and of their meetings.
const MESSAGE_BYTES: usize = 16_384;
pub(super) const EXCHANGE_BYTES: usize = 4096 + 2 * MESSAGE_BYTES;

#[repr(C)]
struct Host {
    rank: c_int,
    room: usize,
    most_bytes: usize,
    place: *const c_char,
    exchange: extern "C" fn(*const c_void, usize, *mut c_void),
}

struct Exchange {
    /// Memory for this rank's bytes, and for the other's.
    memory: [Words; 2],
    meeting: Meeting,
}

thread_local! {
    /// Set while a library opens.
    static EXCHANGE: RefCell<Option<Exchange>> = const { RefCell::new(None) };
}

extern "C" fn exchange(mine: *const c_void, bytes: usize, theirs: *mut c_void) {
    EXCHANGE.with_borrow(|exchange| {
        let Some(Exchange { memory: [out, back], meeting }) = exchange else {
            return;
        };
        // SAFETY: the library passes what `peer.h` says: so many bytes, and room for as many as a message may have.
        let (mine, theirs) = unsafe {
            (
                std::slice::from_raw_parts(mine.cast::<u8>(), bytes),
                std::slice::from_raw_parts_mut(theirs.cast::<u8>(), MESSAGE_BYTES),
            )
        };
        out.put(0, mine);
        meeting.meet(|| {});
        back.get(0, theirs);
        meeting.meet(|| {});
    });
}

type Put = unsafe extern "C" fn(c_uint, *const c_void, usize, usize, u64) -> c_int;
type Take = unsafe extern "C" fn(c_uint, usize, usize, u64) -> *const c_void;
type Run = unsafe extern "C" fn();

/// Closed when it is dropped.
pub(super) struct Library {
    pub(super) ways: Vec<String>,
    put: Put,
    take: Take,
    progress: Run,
    close: Run,
}

impl Library {
    /// Loads and opens a library, for messages of `most_bytes` in memory of `room`. Both ranks call it, with the same `place`, a name that
    /// is theirs alone, and [`EXCHANGE_BYTES`] of shared memory that were zero.
    pub(super) fn open(
        path: &str,
        place: &str,
        shared: Words,
        rank: usize,
        (room, most_bytes): (usize, usize),
    ) -> Result<Self, BenchError> {
        let path = CString::new(path)?;
        // SAFETY: the library is one of `bench/peers`. RTLD_GLOBAL: Open MPI loads plugins that need its symbols.
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
        // It may keep the name.
        let place = CString::new(place)?.into_raw();
        let host = Host { rank: rank as c_int, room, most_bytes, place, exchange };
        let memory = [rank, 1 - rank].map(|of| shared.part(4096 + of * MESSAGE_BYTES, MESSAGE_BYTES));
        EXCHANGE.set(Some(Exchange { memory, meeting: Meeting::new(shared, rank) }));
        // SAFETY: the types are those of `peer.h`.
        let (opened, mut name, mut this) = unsafe {
            let open: extern "C" fn(*const Host) -> c_int = std::mem::transmute(symbol(c"peer_open")?);
            let ways: extern "C" fn() -> *const *const c_char = std::mem::transmute(symbol(c"peer_ways")?);
            let this = Self {
                ways: Vec::new(),
                put: std::mem::transmute::<*mut c_void, Put>(symbol(c"peer_put")?),
                take: std::mem::transmute::<*mut c_void, Take>(symbol(c"peer_take")?),
                progress: std::mem::transmute::<*mut c_void, Run>(symbol(c"peer_progress")?),
                close: std::mem::transmute::<*mut c_void, Run>(symbol(c"peer_close")?),
            };
            (open(&host), ways(), std::mem::ManuallyDrop::new(this))
        };
        EXCHANGE.set(None);
        if opened != 0 {
            return Err("the library could not be opened".into());
        }
        // SAFETY: an array of strings that ends with NULL, as `peer.h` says.
        unsafe {
            while !(*name).is_null() {
                this.ways.push(CStr::from_ptr(*name).to_string_lossy().into_owned());
                name = name.add(1);
            }
        }
        Ok(std::mem::ManuallyDrop::into_inner(this))
    }

    #[inline(always)]
    pub(super) fn put(&self, way: u64, data: &[u8], at: usize, number: u64) -> Result<(), BenchError> {
        // SAFETY: a way of the library, and memory that stays for the call.
        match unsafe { (self.put)(way as c_uint, data.as_ptr().cast(), data.len(), at, number) } {
            0 => Ok(()),
            code => Err(format!("peer_put failed with {code}").into()),
        }
    }

    #[inline(always)]
    pub(super) fn take(&self, way: u64, bytes: usize, at: usize, number: u64) -> Result<&[u8], BenchError> {
        // SAFETY: a way of the library.
        let message = unsafe { (self.take)(way as c_uint, bytes, at, number) };
        if message.is_null() {
            return Err("peer_take failed".into());
        }
        // SAFETY: a complete message, which stays until the next call.
        Ok(unsafe { std::slice::from_raw_parts(message.cast(), bytes) })
    }

    pub(super) fn progress(&self) {
        // SAFETY: the library is open.
        unsafe { (self.progress)() }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the library is open, and is not used after this.
        unsafe { (self.close)() }
    }
}
