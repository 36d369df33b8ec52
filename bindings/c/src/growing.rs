//! Structures that may grow: each begins with its size in bytes, as the program knows it.
//!
//! A program compiled with an older header passes less, and what is missing counts as zero, which means "as before". One compiled with a
//! newer header passes more, which is refused unless the unknown part is zero.

use core::mem::MaybeUninit;

use crate::arguments::null;
use crate::failure::Failure;
use crate::status::mw_status_t;

/// Larger than any such structure will ever be.
const ABSURD: usize = 4096;

/// A structure that begins with its size.
///
/// # Safety
/// It is `repr(C)` with `size: usize` as its first field, has no padding, and zeroes are a value of it.
pub(crate) unsafe trait Growing: Copy {
    /// Name for messages.
    const NAME: &'static str;
    /// Size of its first version, in bytes.
    const FIRST: usize;
}

/// Checks the size that a structure claims.
///
/// # Safety
/// `from` is `NULL`, or points to as many bytes as its first word says, and at least to that word.
unsafe fn size<T: Growing>(from: *const T) -> Result<usize, Failure> {
    if from.is_null() {
        return Err(null(T::NAME));
    }
    if !from.is_aligned() {
        return Err(Failure::argument(format!(
            "the `{}` at {from:p} is not aligned to {} bytes",
            T::NAME,
            align_of::<T>()
        )));
    }
    // SAFETY: not null, aligned, and the first field is the size (`Growing`).
    let size = unsafe { from.cast::<usize>().read() };
    if !(T::FIRST..=ABSURD).contains(&size) {
        return Err(Failure::argument(format!(
            "a `{0}` says that it has {size} bytes: set its field `size` to sizeof({0}) before the call",
            T::NAME
        )));
    }
    Ok(size)
}

/// Reads a structure.
///
/// # Safety
/// `from` is `NULL`, or points to as many bytes as its first word says, and at least to that word.
pub(crate) unsafe fn read<T: Growing>(from: *const T) -> Result<T, Failure> {
    // SAFETY: the same promise.
    let size = unsafe { size(from) }?;
    let known = size.min(size_of::<T>());
    let bytes = from.cast::<u8>();
    for index in known..size {
        // SAFETY: within the structure, whose size the caller vouches for.
        if unsafe { bytes.add(index).read() } != 0 {
            return Err(Failure {
                status: mw_status_t::MW_ERR_VERSION,
                message: format!(
                    "byte {index} of a `{}` is not zero, and this library ({}) knows only {} bytes of it: the program asks for something that is newer; install the library that it was compiled for",
                    T::NAME,
                    env!("CARGO_PKG_VERSION"),
                    size_of::<T>()
                ),
            });
        }
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are there on both sides, and the sides are apart. Zeroes are a value (`Growing`), and so is what a
    // C program put over them, which uses the same fields.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes, value.as_mut_ptr().cast::<u8>(), known);
        Ok(value.assume_init())
    }
}

/// Writes a structure's fields, as many as the program knows, and zeroes what only the program knows. Its size stays.
///
/// # Safety
/// `to` is `NULL`, or points to as many bytes as its first word says, and at least to that word.
pub(crate) unsafe fn write<T: Growing>(to: *mut T, value: &T) -> Result<(), Failure> {
    // SAFETY: the same promise.
    let size = unsafe { size(to.cast_const()) }?;
    let known = size.min(size_of::<T>());
    let from = core::ptr::from_ref(value).cast::<u8>();
    let word = size_of::<usize>();
    // SAFETY: `size` bytes are there, of which `known` are in `value`, all initialised since there is no padding (`Growing`);
    // `known` is at least `FIRST`, which is more than the size itself.
    unsafe {
        let to = to.cast::<u8>();
        core::ptr::copy_nonoverlapping(from.add(word), to.add(word), known - word);
        core::ptr::write_bytes(to.add(known), 0, size - known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Options {
        size: usize,
        first: u64,
        later: u64,
    }

    // SAFETY: `repr(C)`, three words without padding, the size first, numbers.
    unsafe impl Growing for Options {
        const NAME: &'static str = "options";
        const FIRST: usize = 16;
    }

    fn read_words(words: &[u64]) -> Result<Options, Failure> {
        // SAFETY: the tests give at least as many words as they say.
        unsafe { read(words.as_ptr().cast()) }
    }

    #[test]
    fn what_an_older_program_does_not_know_is_zero() {
        let options = read_words(&[16, 7, 99]).unwrap();
        assert_eq!((options.first, options.later), (7, 0));
    }

    #[test]
    fn what_a_newer_program_adds_must_be_zero() {
        let options = read_words(&[40, 7, 8, 0, 0]).unwrap();
        assert_eq!((options.first, options.later), (7, 8));
        let failure = read_words(&[40, 7, 8, 0, 1]).unwrap_err();
        assert_eq!(failure.status, mw_status_t::MW_ERR_VERSION);
        assert!(failure.message.contains("byte 32 of a `options`"), "{}", failure.message);
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        for size in [0, 8, 15, 4097, u64::MAX] {
            let failure = read_words(&[size, 7, 8]).unwrap_err();
            assert_eq!(failure.status, mw_status_t::MW_ERR_ARGUMENT, "{size}");
        }
        // SAFETY: `NULL` is refused.
        assert!(unsafe { read::<Options>(core::ptr::null()) }.is_err());
        let words = [16_u64, 7, 8];
        // SAFETY: an unaligned pointer is refused before it is read.
        assert!(unsafe { read::<Options>(words.as_ptr().cast::<u8>().add(1).cast()) }.is_err());
    }

    #[test]
    fn results_fill_what_the_program_has_room_for() {
        let value = Options { size: 0, first: 1, later: 2 };
        let mut older = [16_u64, 9, 9, 9];
        // SAFETY: the words are more than the size says.
        unsafe { write(older.as_mut_ptr().cast::<Options>(), &value) }.unwrap();
        assert_eq!(older, [16, 1, 9, 9]);
        let mut newer = [32_u64, 9, 9, 9];
        // SAFETY: the words are as many as the size says.
        unsafe { write(newer.as_mut_ptr().cast::<Options>(), &value) }.unwrap();
        assert_eq!(newer, [32, 1, 2, 0]);
    }
}
