//! Typed views of shared memory.

use core::fmt;
use core::marker::PhantomData;

use mapwire_host::memory::raw;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Error, Result};
use crate::opening::Opening;
use crate::shared::error::SharedError;

/// Types that can lie in shared memory: any bytes are a value, every value is bytes, and a copy is as good as the value. So
/// numbers, arrays of them and `repr(C)` structures without padding that derive `zerocopy`'s traits; no references, no `bool`.
pub trait Sharable: FromBytes + IntoBytes + Immutable + Copy + Send + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + 'static> Sharable for T {}

/// A run of values in shared memory: a handle, not a borrow. Its address is the same in every rank, so it can be handed from
/// rank to rank as a number.
///
/// On one host accesses are those of the processor to memory that threads share. With minipages they are sequentially consistent: a value is
/// never older than the last store to its allocation (Millipage). With lazy consistency they are as new as the last lock or barrier. Between
/// conflicting accesses put a lock or a barrier in any case: an access to a value that is larger than a machine word is no single step.
///
/// A slice does not keep the memory open, and may be kept for longer than it is open: each access asks first, and none
/// reaches memory that has been closed. [`get`](Self::get) and [`set`](Self::set) then panic, [`read_into`](Self::read_into)
/// and [`write_from`](Self::write_from) give an error. The answer is that of the moment: let the threads of a rank finish with
/// the memory before one of them closes it. An access that the end overtakes ends the process.
pub struct SharedSlice<T> {
    address: u64,
    length: usize,
    opening: Opening,
    values: PhantomData<fn() -> T>,
}

impl<T> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedSlice<T> {}

impl<T> fmt::Debug for SharedSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedSlice({} at {:#x})", self.length, self.address)
    }
}

impl<T: Sharable> SharedSlice<T> {
    pub(crate) const fn new(opening: Opening, address: u64, length: usize) -> Self {
        Self { address, length, opening, values: PhantomData }
    }

    pub(crate) const fn opening(&self) -> Opening {
        self.opening
    }

    /// Address of the first value; the same in every rank.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Pointer to the first value.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut T {
        self.address as *mut T
    }

    /// Values `start` to `start + length`.
    ///
    /// # Errors
    /// A range outside the slice.
    pub fn part(&self, start: usize, length: usize) -> Result<Self> {
        self.check(start, length)?;
        Ok(Self::new(self.opening, self.address + (start * size_of::<T>()) as u64, length))
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// When `index` is not within the slice, or the shared memory has been closed.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.length, "index {index} of a shared slice of {}", self.length);
        self.require_open();
        // SAFETY: within an allocation of the shared memory (a slice is made for one, and the index was checked), which is
        // open (as was checked), so it is mapped; a page that is not open here is fetched by the fault handler. Any bytes are a `T`.
        unsafe { raw::load(self.as_ptr().add(index)) }
    }

    /// Stores a value at `index`.
    ///
    /// # Panics
    /// When `index` is not within the slice, or the shared memory has been closed.
    #[inline]
    pub fn set(&self, index: usize, value: T) {
        assert!(index < self.length, "index {index} of a shared slice of {}", self.length);
        self.require_open();
        // SAFETY: as in `get`; the fault handler makes this rank the page's only writer first.
        unsafe { raw::store(self.as_ptr().add(index), value) }
    }

    /// Copies values out, from `start` on.
    ///
    /// # Errors
    /// A range outside the slice; the shared memory has been closed.
    pub fn read_into(&self, start: usize, into: &mut [T]) -> Result<()> {
        self.check(start, into.len())?;
        self.check_open()?;
        let from = self.as_ptr().wrapping_add(start).cast::<u8>();
        // SAFETY: the range was checked, and is mapped as in `get`; `into` is private memory of its own length.
        unsafe { raw::copy_out(from, into.as_mut_bytes()) };
        Ok(())
    }

    /// Copies values in, from `start` on.
    ///
    /// # Errors
    /// A range outside the slice; the shared memory has been closed.
    pub fn write_from(&self, start: usize, from: &[T]) -> Result<()> {
        self.check(start, from.len())?;
        self.check_open()?;
        let to = self.as_ptr().wrapping_add(start).cast::<u8>();
        // SAFETY: the range was checked, and is mapped as in `get`.
        unsafe { raw::copy_in(to, from.as_bytes()) };
        Ok(())
    }

    /// The values as a slice.
    ///
    /// # Safety
    /// While the slice lives the shared memory is open, and no rank and no thread stores to these values: a barrier or a lock
    /// keeps them out.
    #[must_use]
    pub const unsafe fn as_slice<'a>(&self) -> &'a [T] {
        // SAFETY: mapped, since the caller keeps the memory open; aligned, since every slice was checked to be
        // aligned for `T`; the caller keeps writers out.
        unsafe { core::slice::from_raw_parts(self.as_ptr(), self.length) }
    }

    /// The values as a slice to be written.
    ///
    /// # Safety
    /// While the slice lives the shared memory is open, and no other rank or thread uses these values: a barrier or a lock keeps
    /// them out.
    #[must_use]
    pub const unsafe fn as_mut_slice<'a>(&self) -> &'a mut [T] {
        // SAFETY: as in `as_slice`; the caller keeps all others out.
        unsafe { core::slice::from_raw_parts_mut(self.as_ptr(), self.length) }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.opening.stands() { Ok(()) } else { Err(self.opening.why_not().into()) }
    }

    #[inline(always)]
    fn require_open(&self) {
        if !self.opening.stands() {
            closed(self.opening, self.address, self.length);
        }
    }

    fn check(&self, start: usize, length: usize) -> Result<()> {
        match start.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(Error::OutOfRange {
                offset: start as u64,
                length: length as u64,
                end: self.length as u64,
                unit: "elements",
            }),
        }
    }
}

#[cold]
#[inline(never)]
fn closed(opening: Opening, address: u64, length: usize) -> ! {
    if let SharedError::Forked(_) = opening.why_not() {
        mapwire_host::faults::end_forked_child(address as usize);
    }
    panic!(
        "a shared slice of {length} at {address:#x} is used after the shared memory was closed: close it when all are done with it"
    )
}
