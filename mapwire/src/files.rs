//! Reads files into shared memory and writes them from there, through private memory.
//!
//! A system call does not fault as a load does: handed a page that is closed here, it fails with `EFAULT`, or stops short. Touching
//! the pages first is not enough, since another rank may take them away again before the call.

use std::io::{ErrorKind, Read, Write};

use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::slice::{Sharable, SharedSlice};

/// Bytes of private memory that a transfer goes through.
const CHUNK_BYTES: usize = 64 << 10;

impl<T: Sharable> SharedSlice<T> {
    /// Reads up to `length` values from `source` into this slice, from `start` on, until `source` ends. Gives the number of values
    /// read. The bytes go through 64 KiB of private memory, so that no system call is handed shared memory.
    ///
    /// # Errors
    /// A range outside the slice; the shared memory has been closed; [`Error::Io`]: `source` failed, or ended within a value. What
    /// was read before is in place.
    pub fn read_from(&self, start: usize, length: usize, source: &mut impl Read) -> Result<usize> {
        let whole = self.part(start, length)?;
        if size_of::<T>() == 0 {
            return Ok(length);
        }
        let mut chunk = private(length);
        let mut done = 0;
        while done < length {
            let wanted = chunk.len().min(length - done);
            let got = fill(chunk[..wanted].as_mut_bytes(), source)?;
            let values = got / size_of::<T>();
            whole.write_from(done, &chunk[..values])?;
            done += values;
            if got % size_of::<T>() != 0 {
                return Err(Error::Io(ErrorKind::UnexpectedEof.into()));
            }
            if values < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Writes `length` values of this slice to `sink`, from `start` on. The bytes go through 64 KiB of private memory, so that no
    /// system call is handed shared memory. What other ranks store meanwhile may be written or not: keep them out by a lock or a
    /// barrier.
    ///
    /// # Errors
    /// A range outside the slice; the shared memory has been closed; [`Error::Io`]: `sink` failed. A part may be written then.
    pub fn write_to(&self, start: usize, length: usize, sink: &mut impl Write) -> Result<()> {
        let whole = self.part(start, length)?;
        let mut chunk = private(length);
        let mut done = 0;
        while done < length {
            let values = chunk.len().min(length - done);
            whole.read_into(done, &mut chunk[..values])?;
            sink.write_all(chunk[..values].as_bytes()).map_err(Error::Io)?;
            done += values;
        }
        Ok(())
    }
}

/// Private memory for a transfer of `length` values.
fn private<T: Sharable>(length: usize) -> Vec<T> {
    let most = (CHUNK_BYTES / size_of::<T>().max(1)).max(1);
    vec![T::new_zeroed(); length.min(most)]
}

/// Reads until `bytes` is full or `source` ends; how many bytes came.
fn fill(bytes: &mut [u8], source: &mut impl Read) -> Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Io(error)),
        }
    }
    Ok(filled)
}
