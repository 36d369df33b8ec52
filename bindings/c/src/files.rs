//! Files read into shared memory and written from it, through private memory: system calls give EFAULT for shared memory.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use std::io::{Error, Read, Result as IoResult, Write};

use mapwire::SharedSlice;

use crate::arguments::{null, required};
use crate::failure::call;
use crate::shared::mw_shared_t;
use crate::status::mw_status_t;

/// Reads up to `length` bytes from the descriptor `fd` into shared memory, from its position on, until the file ends. `*done`, unless
/// `done` is `NULL`, is the number of bytes read, whatever the code: fewer than `length` if the file has ended or the read failed.
///
/// # Errors
/// `MW_ERR_ADDRESS`: the range is not within the shared memory. `MW_ERR_SYSTEM`: read(2) failed; the message says why.
///
/// # Safety
/// `memory` to `memory + length` lies within allocations of
/// `shared`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_read(
    shared: Option<&mw_shared_t>,
    fd: i32,
    memory: *mut c_void,
    length: usize,
    done: Option<&mut MaybeUninit<usize>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    unsafe { counted(shared, File::Descriptor(fd), memory, length, done, read) }
}

/// Writes `length` bytes of shared memory to the descriptor `fd`, from its position on. `*done`, unless `done` is `NULL`, is the number of
/// bytes written, whatever the code. Concurrent stores of other ranks may or may not be written.
///
/// # Errors
/// `MW_ERR_ADDRESS`: the range is not within the shared memory. `MW_ERR_SYSTEM`: write(2) failed; the message says why.
///
/// # Safety
/// As `mw_shared_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_write(
    shared: Option<&mw_shared_t>,
    fd: i32,
    memory: *const c_void,
    length: usize,
    done: Option<&mut MaybeUninit<usize>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    unsafe { counted(shared, File::Descriptor(fd), memory, length, done, write) }
}

/// As `mw_shared_read`, from `stream`, which is a `FILE *` of stdio.
///
/// # Errors
/// As `mw_shared_read`; `MW_ERR_ARGUMENT`: `stream` is `NULL`.
///
/// # Safety
/// `stream` is an open `FILE *` of the C library that this program uses; otherwise as `mw_shared_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_fread(
    shared: Option<&mw_shared_t>,
    stream: *mut c_void,
    memory: *mut c_void,
    length: usize,
    done: Option<&mut MaybeUninit<usize>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    unsafe { counted(shared, File::Stream(stream), memory, length, done, read) }
}

/// As `mw_shared_write`, to `stream`, which is a `FILE *` of stdio. The bytes may stay in its buffer: check fflush(3) or fclose(3).
///
/// # Errors
/// As `mw_shared_write`; `MW_ERR_ARGUMENT`: `stream` is `NULL`.
///
/// # Safety
/// As `mw_shared_fread`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_fwrite(
    shared: Option<&mw_shared_t>,
    stream: *mut c_void,
    memory: *const c_void,
    length: usize,
    done: Option<&mut MaybeUninit<usize>>,
) -> mw_status_t {
    // SAFETY: the caller's promise.
    unsafe { counted(shared, File::Stream(stream), memory, length, done, write) }
}

/// Moves bytes between `file` and the shared memory that C names by `pass`, and returns their number in `*done`.
///
/// # Safety
/// As `mw_shared_read` and `mw_shared_fread`.
unsafe fn counted(
    shared: Option<&mw_shared_t>,
    file: File,
    memory: *const c_void,
    length: usize,
    done: Option<&mut MaybeUninit<usize>>,
    pass: impl FnOnce(&SharedSlice<u8>, &mut Counted) -> Result<(), mapwire::Error>,
) -> mw_status_t {
    let mut file = Counted { file, bytes: 0 };
    let status = call(|| {
        if let File::Stream(stream) = file.file
            && stream.is_null()
        {
            return Err(null("stream"));
        }
        let shared = &required(shared, "shared")?.shared;
        // SAFETY: the caller promises that the range is of allocations; that it is of the shared memory is checked.
        let slice = unsafe { SharedSlice::from_address(shared, memory as u64, length) }?;
        Ok(pass(&slice, &mut file)?)
    });
    if let Some(done) = done {
        done.write(file.bytes);
    }
    status
}

fn read(to: &SharedSlice<u8>, file: &mut Counted) -> Result<(), mapwire::Error> {
    to.read_from(0, to.len(), file).map(drop)
}

fn write(from: &SharedSlice<u8>, file: &mut Counted) -> Result<(), mapwire::Error> {
    from.write_to(0, from.len(), file)
}

/// A file of the caller's: a descriptor, or a `FILE *`.
#[derive(Clone, Copy)]
enum File {
    Descriptor(c_int),
    Stream(*mut c_void),
}

/// A file, open while this lives, and the bytes that have passed.
struct Counted {
    file: File,
    bytes: usize,
}

impl Counted {
    /// Counts what a system call or a function of stdio moved.
    fn count(&mut self, moved: isize) -> IoResult<usize> {
        let moved = usize::try_from(moved).map_err(|_| Error::last_os_error())?;
        self.bytes += moved;
        Ok(moved)
    }
}

impl Read for Counted {
    fn read(&mut self, to: &mut [u8]) -> IoResult<usize> {
        // Declared here, so that the header of this library does not declare them too.
        unsafe extern "C" {
            fn read(fd: c_int, to: *mut c_void, count: usize) -> isize;
            fn fread(to: *mut c_void, size: usize, count: usize, stream: *mut c_void) -> usize;
            fn ferror(stream: *mut c_void) -> c_int;
        }
        let bytes = to.as_mut_ptr().cast();
        // SAFETY: the bytes are private memory of that length. A descriptor that is not open is refused by the kernel; a stream is open, by
        // the caller's promise.
        self.count(unsafe {
            match self.file {
                File::Descriptor(fd) => read(fd, bytes, to.len()),
                File::Stream(stream) => match fread(bytes, 1, to.len(), stream) {
                    0 if ferror(stream) != 0 => -1,
                    count => count as isize,
                },
            }
        })
    }
}

impl Write for Counted {
    fn write(&mut self, from: &[u8]) -> IoResult<usize> {
        // As above.
        unsafe extern "C" {
            fn write(fd: c_int, from: *const c_void, count: usize) -> isize;
            fn fwrite(from: *const c_void, size: usize, count: usize, stream: *mut c_void) -> usize;
        }
        let bytes = from.as_ptr().cast();
        // SAFETY: as in `read`.
        self.count(unsafe {
            match self.file {
                File::Descriptor(fd) => write(fd, bytes, from.len()),
                File::Stream(stream) => match fwrite(bytes, 1, from.len(), stream) {
                    0 if !from.is_empty() => -1,
                    count => count as isize,
                },
            }
        })
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}
