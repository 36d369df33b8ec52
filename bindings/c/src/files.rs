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
    unsafe { counted(shared, Descriptor(fd), memory, length, done, read) }
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
    unsafe { counted(shared, Descriptor(fd), memory, length, done, write) }
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
    if stream.is_null() {
        return call(|| Err(null("stream")));
    }
    // SAFETY: the caller's promise.
    unsafe { counted(shared, Stream(stream), memory, length, done, read) }
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
    if stream.is_null() {
        return call(|| Err(null("stream")));
    }
    // SAFETY: the caller's promise.
    unsafe { counted(shared, Stream(stream), memory, length, done, write) }
}

/// Moves bytes between `file` and the shared memory that C names by `pass`, and returns their number in `*done`.
///
/// # Safety
/// As `mw_shared_read`.
unsafe fn counted<F>(
    shared: Option<&mw_shared_t>,
    file: F,
    memory: *const c_void,
    length: usize,
    done: Option<&mut MaybeUninit<usize>>,
    pass: impl FnOnce(&SharedSlice<u8>, &mut Counted<F>) -> Result<(), mapwire::Error>,
) -> mw_status_t {
    let mut file = Counted { file, bytes: 0 };
    let status = call(|| {
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

fn read(to: &SharedSlice<u8>, file: &mut impl Read) -> Result<(), mapwire::Error> {
    to.read_from(0, to.len(), file).map(drop)
}

fn write(from: &SharedSlice<u8>, file: &mut impl Write) -> Result<(), mapwire::Error> {
    from.write_to(0, from.len(), file)
}

/// A descriptor of the caller's.
struct Descriptor(c_int);

impl Read for Descriptor {
    fn read(&mut self, to: &mut [u8]) -> IoResult<usize> {
        // Declared here, so that the header of this library does not declare them too.
        unsafe extern "C" {
            fn read(fd: c_int, to: *mut c_void, count: usize) -> isize;
        }
        // SAFETY: the bytes are private memory of that length; a descriptor that is not open is refused by the kernel.
        let count = unsafe { read(self.0, to.as_mut_ptr().cast(), to.len()) };
        usize::try_from(count).map_err(|_| Error::last_os_error())
    }
}

impl Write for Descriptor {
    fn write(&mut self, from: &[u8]) -> IoResult<usize> {
        // Declared here, so that the header of this library does not declare them too.
        unsafe extern "C" {
            fn write(fd: c_int, from: *const c_void, count: usize) -> isize;
        }
        // SAFETY: the bytes are private memory of that length; a descriptor that is not open is refused by the kernel.
        let count = unsafe { write(self.0, from.as_ptr().cast(), from.len()) };
        usize::try_from(count).map_err(|_| Error::last_os_error())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

/// A `FILE *`, open while this lives.
struct Stream(*mut c_void);

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> IoResult<usize> {
        // Declared here, so that the header of this library does not declare them too.
        unsafe extern "C" {
            fn fread(to: *mut c_void, size: usize, count: usize, stream: *mut c_void) -> usize;
            fn ferror(stream: *mut c_void) -> c_int;
        }
        // SAFETY: the stream is open, by the caller's promise; the bytes are private memory.
        let count = unsafe { fread(to.as_mut_ptr().cast(), 1, to.len(), self.0) };
        // SAFETY: as above.
        if count == 0 && unsafe { ferror(self.0) } != 0 {
            return Err(Error::last_os_error());
        }
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> IoResult<usize> {
        // Declared here, so that the header of this library does not declare them too.
        unsafe extern "C" {
            fn fwrite(from: *const c_void, size: usize, count: usize, stream: *mut c_void) -> usize;
        }
        // SAFETY: the stream is open, by the caller's promise; the bytes are private memory.
        let count = unsafe { fwrite(from.as_ptr().cast(), 1, from.len(), self.0) };
        if count == 0 && !from.is_empty() {
            return Err(Error::last_os_error());
        }
        Ok(count)
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

/// Counts the bytes that passed.
struct Counted<F> {
    file: F,
    bytes: usize,
}

impl<F: Read> Read for Counted<F> {
    fn read(&mut self, to: &mut [u8]) -> IoResult<usize> {
        let count = self.file.read(to)?;
        self.bytes += count;
        Ok(count)
    }
}

impl<F: Write> Write for Counted<F> {
    fn write(&mut self, from: &[u8]) -> IoResult<usize> {
        let count = self.file.write(from)?;
        self.bytes += count;
        Ok(count)
    }

    fn flush(&mut self) -> IoResult<()> {
        self.file.flush()
    }
}
