//! Values and vectors in shared memory that belong to whoever holds them.

use core::fmt;

use mapwire_host::processes::Owner;

use super::Shared;
use crate::error::Result;
use crate::slice::{Sharable, SharedSlice};

/// A value in shared memory, freed when this is dropped. Hand it to another rank as a number:
/// [`into_address`](Self::into_address) there, [`from_address`](Self::from_address) here.
pub struct SharedBox<T: Sharable> {
    shared: Shared,
    slice: SharedSlice<T>,
    is_given_up: bool,
    /// A forked child frees nothing of its parent's.
    owner: Owner,
}

impl Shared {
    /// Moves `value` into shared memory.
    ///
    /// # Errors
    /// No room is left.
    #[track_caller]
    pub fn boxed<T: Sharable>(&self, value: T) -> Result<SharedBox<T>> {
        let slice = self.alloc_block(1)?;
        slice.set(0, value);
        Ok(SharedBox { shared: self.clone(), slice, is_given_up: false, owner: Owner::me() })
    }

    /// An empty vector in shared memory.
    #[must_use]
    pub fn vec<T: Sharable>(&self) -> SharedVec<T> {
        SharedVec { shared: self.clone(), block: None, length: 0, owner: Owner::me() }
    }

    /// A block for `length` values, aligned for them.
    #[track_caller]
    fn alloc_block<T: Sharable>(&self, length: usize) -> Result<SharedSlice<T>> {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        let address = match align_of::<T>() {
            ..=16 => self.malloc(bytes)?,
            align => self.aligned_alloc(align as u64, bytes)?,
        };
        SharedSlice::checked(self, address, length)
    }

    /// Frees what a handle owned. After the end of the memory there is nothing to free.
    fn free_block(&self, address: u64) {
        if let Err(error) = self.free(address) {
            tracing::debug!(address, %error, "shared memory was not freed");
        }
    }
}

impl<T: Sharable> SharedBox<T> {
    /// The value now. Another rank that has the address may store at the same time.
    #[must_use]
    pub fn get(&self) -> T {
        self.slice.get(0)
    }

    /// Stores a value.
    pub fn set(&self, value: T) {
        self.slice.set(0, value);
    }

    /// The value's address, the same in every rank.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.slice.address()
    }

    /// Gives the value up without freeing it: whoever makes a `SharedBox` of the address owns it.
    #[must_use]
    pub fn into_address(mut self) -> u64 {
        let address = self.address();
        self.is_given_up = true;
        address
    }

    /// Takes over a value that another handle has [given up](Self::into_address), in this rank or another.
    ///
    /// # Safety
    /// `address` is of a `SharedBox<T>` of this memory that nobody else owns.
    ///
    /// # Errors
    /// An address outside of the memory, or not aligned for `T`.
    pub unsafe fn from_address(shared: &Shared, address: u64) -> Result<Self> {
        Ok(Self {
            shared: shared.clone(),
            slice: SharedSlice::checked(shared, address, 1)?,
            is_given_up: false,
            owner: Owner::me(),
        })
    }
}

impl<T: Sharable> Drop for SharedBox<T> {
    fn drop(&mut self) {
        if !self.is_given_up && self.owner.is_me() {
            self.shared.free_block(self.slice.address());
        }
    }
}

impl<T: Sharable + fmt::Debug> fmt::Debug for SharedBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBox at {:#x}", self.address())
    }
}

/// A vector whose values lie in shared memory. It belongs to its process, which alone lengthens it; others use its values by
/// [`as_slice`](Self::as_slice), whose address is good until the next [`push`](Self::push) that moves it.
pub struct SharedVec<T: Sharable> {
    shared: Shared,
    /// As long as the capacity.
    block: Option<SharedSlice<T>>,
    length: usize,
    owner: Owner,
}

impl<T: Sharable> SharedVec<T> {
    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of values that there is room for without moving.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.map_or(0, |block| block.len())
    }

    /// Makes room for `more` values, moving all if need be.
    ///
    /// # Errors
    /// No room is left; the vector is as it was.
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        let needed = self.length.saturating_add(more);
        if needed <= self.capacity() {
            return Ok(());
        }
        let wider: SharedSlice<T> = self.shared.alloc_block(needed.max(2 * self.capacity()).max(4))?;
        if let Some(block) = self.block.replace(wider) {
            (0..self.length).for_each(|at| wider.set(at, block.get(at)));
            self.shared.free_block(block.address());
        }
        Ok(())
    }

    /// Appends a value.
    ///
    /// # Errors
    /// No room is left; the vector is as it was.
    pub fn push(&mut self, value: T) -> Result<()> {
        self.reserve(1)?;
        if let Some(block) = &self.block {
            block.set(self.length, value);
            self.length += 1;
        }
        Ok(())
    }

    /// Takes the last value off.
    pub fn pop(&mut self) -> Option<T> {
        self.length = self.length.checked_sub(1)?;
        self.block.map(|block| block.get(self.length))
    }

    /// The values, for all ranks; `None` before there was any.
    #[must_use]
    pub fn as_slice(&self) -> Option<SharedSlice<T>> {
        self.block.as_ref()?.part(0, self.length).ok()
    }
}

impl<T: Sharable> Drop for SharedVec<T> {
    fn drop(&mut self) {
        if let Some(block) = self.block.filter(|_| self.owner.is_me()) {
            self.shared.free_block(block.address());
        }
    }
}

impl<T: Sharable> fmt::Debug for SharedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedVec({} of {})", self.length, self.capacity())
    }
}
