//! Arrays whose rows move between ranks one by one.

use core::fmt;

use mapwire_dsm::Units;
use mapwire_translation::PAGE_BYTES;

use super::{AllocOptions, Memory, Shared, SharedError};
use crate::config::Coherence;
use crate::error::{Error, Result};
use crate::opening::Opening;
use crate::slice::{Sharable, SharedSlice};

/// Rows of one length in shared memory: a handle, as [`SharedSlice`] is, of which three numbers tell another rank all:
/// [`address`](Self::address), [`len`](Self::len) and [`row_len`](Self::row_len).
///
/// With minipages each row is one, and moves between ranks alone. Those below a page share pages, each in a view of its own: as many as the
/// page has room for and the job has views (`--views`). Longer ones begin on a page each. On one host, and under hlrc, rows are adjacent.
#[derive(Clone, Copy)]
pub struct SharedRows<T> {
    first: SharedSlice<T>,
    rows: usize,
    place: Place,
}

/// Where rows lie: `per_run` of them are `step` bytes apart, and then the next `run` bytes after the first of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    per_run: u64,
    step: u64,
    run: u64,
}

impl Place {
    fn offset(&self, row: u64) -> Option<u64> {
        let of_run = (row / self.per_run).checked_mul(self.run)?;
        of_run.checked_add(row % self.per_run * self.step)
    }
}

impl Shared {
    /// Allocates `rows` rows of `row_length` zeroed values. This rank may store to them at once; others learn of them by
    /// [`broadcast_rows`](Self::broadcast_rows).
    ///
    /// # Errors
    /// No rows, or none of any length; more than is left; options with a unit, which a row is; what [`alloc_with`](Self::alloc_with) refuses.
    #[track_caller]
    pub fn alloc_rows<T: Sharable>(
        &self,
        rows: usize,
        row_length: usize,
        options: &AllocOptions<'_>,
    ) -> Result<SharedRows<T>> {
        let row_bytes = (row_length as u64).saturating_mul(size_of::<T>() as u64);
        let bytes = options.given_unit().of_rows(rows as u64, row_bytes).map_err(SharedError::from)?;
        let least = least_bytes::<T>()?;
        let address = match &self.inner.memory {
            Memory::Protocol(protocol) if rows > 1 && self.are_minipages(options) => {
                let model = options.of_model(self.coherence(), self.node().size(), 1)?;
                let address = protocol.alloc_rows(rows as u64, row_bytes, model)?;
                let last = self.place_of_rows(address, row_bytes).offset(rows as u64 - 1).unwrap_or(0);
                self.note_allocations(address, address + last, row_bytes, options.given_name());
                address
            }
            _ => self.alloc_bytes_with(bytes.max(least), options)?,
        };
        SharedRows::checked(self, address, rows, row_length)
    }

    /// Gives rows that `root` allocated to all ranks. Other ranks' `rows` are ignored.
    ///
    /// # Errors
    /// As [`broadcast_slice`](Self::broadcast_slice).
    pub fn broadcast_rows<T: Sharable>(&self, root: usize, rows: Option<SharedRows<T>>) -> Result<SharedRows<T>> {
        let told = rows.map_or([0; 3], |rows| [rows.address(), rows.len() as u64, rows.row_len() as u64]);
        let [address, rows, row_length] = told.map(|number| self.broadcast(root, number));
        SharedRows::checked(self, address?, rows? as usize, row_length? as usize)
    }

    fn are_minipages(&self, options: &AllocOptions<'_>) -> bool {
        self.coherence() == Coherence::Minipages || options.given_coherence() == Coherence::Minipages
    }

    /// Where rows lie whose first is at `address`.
    fn place_of_rows(&self, address: u64, row_bytes: u64) -> Place {
        let adjacent = Place { per_run: 1, step: 0, run: row_bytes };
        let Memory::Protocol(protocol) = &self.inner.memory else { return adjacent };
        let layout = protocol.layout();
        let Some((view, _)) = layout.locate(address as usize) else { return adjacent };
        if self.coherence() == Coherence::Hlrc && view == 0 || row_bytes == 0 {
            return adjacent;
        }
        let views = layout.views as u16;
        let shape = |rows: u64| Units {
            view: view as u16,
            first_page: 0,
            length_bytes: row_bytes.saturating_mul(rows),
            unit_bytes: row_bytes,
        };
        let per_run = u64::from(shape(1).per_page(views));
        let at = |row: u64| {
            let minipage = shape(per_run + 1).unit(row, views)?;
            Some(layout.view_range(usize::from(minipage.view)).start as u64 + minipage.offset_bytes)
        };
        match (at(0), at(1), at(per_run)) {
            (Some(first), Some(second), Some(run)) => Place { per_run, step: second - first, run: run - first },
            _ => adjacent,
        }
    }
}

/// Bytes of an allocation that is aligned for `T`: what is longer is aligned to more.
pub(super) fn least_bytes<T>() -> Result<u64> {
    match align_of::<T>() {
        ..=16 => Ok(1),
        17..=64 => Ok(64),
        65..=PAGE_BYTES => Ok(4096),
        align => Err(Error::Misplaced { address: PAGE_BYTES as u64, align: align as u64 }),
    }
}

impl<T: Sharable> SharedRows<T> {
    fn checked(shared: &Shared, address: u64, rows: usize, row_length: usize) -> Result<Self> {
        let first = SharedSlice::checked(shared, address, row_length)?;
        let row_bytes = (row_length as u64).saturating_mul(size_of::<T>() as u64);
        let _ = super::Unit::Auto.of_rows(rows as u64, row_bytes).map_err(SharedError::from)?;
        let place = shared.place_of_rows(address, row_bytes);
        // The last lies behind all others, or in a later view.
        let last = place.offset(rows as u64 - 1).and_then(|offset| address.checked_add(offset)).unwrap_or(u64::MAX);
        SharedSlice::<T>::checked(shared, last, row_length)?;
        Ok(Self { first, rows, place })
    }

    /// The rows that another rank allocated and told this one of.
    ///
    /// # Safety
    /// `address`, `rows` and `row_length` are those of an allocation of `shared` by [`Shared::alloc_rows`].
    ///
    /// # Errors
    /// Rows that are not within the shared memory, or not aligned for `T`; no rows.
    pub unsafe fn from_address(shared: &Shared, address: u64, rows: usize, row_length: usize) -> Result<Self> {
        Self::checked(shared, address, rows, row_length)
    }
}

impl<T: Sharable> SharedRows<T> {
    /// Address of the first row; the same in every rank.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.first.address()
    }

    /// Number of rows, at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Number of values in each row.
    #[must_use]
    pub const fn row_len(&self) -> usize {
        self.first.len()
    }

    /// A row.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    #[must_use]
    pub fn row(&self, number: usize) -> SharedSlice<T> {
        assert!(number < self.rows, "row {number} of {} in shared memory", self.rows);
        // That of the last row was checked.
        let offset = self.place.offset(number as u64).unwrap_or(0);
        SharedSlice::new(self.opening(), self.address() + offset, self.row_len())
    }

    const fn opening(&self) -> Opening {
        self.first.opening()
    }
}

impl<T> fmt::Debug for SharedRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRows({} like {:?})", self.rows, self.first)
    }
}
