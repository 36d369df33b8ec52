//! Memory of ours that the kernel reads or writes.

use core::ops::Range;

use mapwire_host::mapping::Mapping;
use rustix::io::Errno;

/// Private memory, zeroed at first. Slices of it are made for the time of a borrow only, so that addresses of other parts
/// of it stay valid for the kernel meanwhile.
#[derive(Debug)]
pub(super) struct Slab {
    mapping: Mapping,
    bytes: usize,
}

impl Slab {
    /// Memory of `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Result<Self, Errno> {
        let mapping = Mapping::anonymous(bytes)?;
        Ok(Self { mapping, bytes })
    }

    #[inline(always)]
    pub(super) fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the byte at `at`, or of the end.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    #[inline(always)]
    pub(super) fn address(&self, at: usize) -> *mut u8 {
        assert!(at <= self.bytes);
        self.mapping.at(at, self.bytes - at)
    }

    /// The bytes of `range`.
    ///
    /// # Panics
    /// If they are not all within it.
    #[inline(always)]
    pub(super) fn slice(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        let start = self.address(range.start);
        // SAFETY: mapped for loads and stores while `self` lives, within its length, initialised by the kernel; nobody else has
        // the addresses but the kernel, which uses them within calls that borrow `self`, and `&mut self` excludes those and
        // other slices.
        unsafe { core::slice::from_raw_parts_mut(start, range.len()) }
    }
}
