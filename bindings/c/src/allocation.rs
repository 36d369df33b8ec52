//! Allocations in shared memory that say more than their length.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;

use mapwire::{AllocOptions, Coherence, SharedRows, Unit};

use crate::arguments::{give, new_object, required};
use crate::failure::{Failure, call};
use crate::growing::{self, Growing};
use crate::memory;
use crate::shared::mw_shared_t;
use crate::status::mw_status_t;

/// The unit that is the whole allocation.
pub const MW_UNIT_WHOLE: u64 = u64::MAX;

/// In a job of hlrc, the allocation is sequentially consistent, as with minipages.
pub const MW_ALLOC_MINIPAGES: u32 = 1;
/// The allocation is lazily consistent, which only a job of hlrc has.
pub const MW_ALLOC_HLRC: u32 = 2;
/// `home` names a rank.
pub const MW_ALLOC_HOME: u32 = 4;

/// Options of an allocation: how it moves between hosts. Where all ranks are on one host they are checked in the same way and have no effect.
/// Zeroes, but for the size, are the defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mw_alloc_options_t {
    /// `sizeof(mw_alloc_options_t)`; set it before the call.
    pub size: usize,
    /// With minipages, the bytes that move between ranks as one, rounded up to pages: up to the allocation's length. 0: a page of a longer
    /// allocation. `MW_UNIT_WHOLE`: all of it. The last unit is shorter if they do not divide the allocation.
    pub unit: u64,
    /// The allocation's name for people; or `NULL`.
    pub name: *const c_char,
    /// `MW_ALLOC_MINIPAGES` or `MW_ALLOC_HLRC`; `MW_ALLOC_HOME`.
    pub flags: u32,
    /// With `MW_ALLOC_HOME` and under hlrc, the rank that keeps its pages. Otherwise the first rank to touch a page does.
    pub home: u32,
}

// SAFETY: `repr(C)`; the size comes first; three words and two half words make no padding; and zeroes are a value of every field.
unsafe impl Growing for mw_alloc_options_t {
    const NAME: &'static str = "mw_alloc_options_t";
    const FIRST: usize = 32;
}

/// The options that a program names; none if it names no structure.
///
/// # Safety
/// `options` is `NULL` or as its size says, and its name is `NULL` or ends in a NUL and lives as long as `'a`.
unsafe fn options<'a>(options: *const mw_alloc_options_t) -> Result<AllocOptions<'a>, Failure> {
    let mut given = AllocOptions::new();
    if options.is_null() {
        return Ok(given);
    }
    // SAFETY: the caller's promise.
    let options = unsafe { growing::read(options) }?;
    given = given.unit(match options.unit {
        0 => Unit::Auto,
        MW_UNIT_WHOLE => Unit::Whole,
        bytes => Unit::Bytes(bytes),
    });
    if !options.name.is_null() {
        // SAFETY: the caller's promise.
        given = given.name(unsafe { memory::text(options.name, "name") }?);
    }
    if options.flags & MW_ALLOC_HOME != 0 {
        given = given.home(options.home as usize);
    }
    match options.flags & !MW_ALLOC_HOME {
        0 => Ok(given),
        MW_ALLOC_MINIPAGES => Ok(given.coherence(Coherence::Minipages)),
        MW_ALLOC_HLRC => Ok(given.coherence(Coherence::Hlrc)),
        _ => Err(Failure::argument(format!(
            "unknown flags {:#x}: use MW_ALLOC_MINIPAGES or MW_ALLOC_HLRC, and MW_ALLOC_HOME",
            options.flags
        ))),
    }
}

/// Rows in shared memory: three numbers, which `mw_shared_broadcast` tells other ranks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mw_rows_t {
    /// Address of the first.
    pub address: u64,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of each.
    pub row_bytes: u64,
}

/// As `mw_shared_alloc`, with options; `NULL` says nothing special.
///
/// # Errors
/// As `mw_shared_alloc`. `MW_ERR_ARGUMENT`: a unit longer than the allocation; unknown flags. `MW_ERR_RANGE`: the home is not a rank of the
/// job. `MW_ERR_STATE`: the job cannot keep memory coherent in this way.
///
/// # Safety
/// `options` is `NULL` or as its size says, and its name is `NULL` or ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_alloc_with(
    shared: Option<&mw_shared_t>,
    length: usize,
    options: *const mw_alloc_options_t,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        let place = new_object(memory, "memory")?;
        // SAFETY: the caller's promise.
        let options = unsafe { self::options(options) }?;
        mapwire::allocates_by("mw_shared_alloc_with");
        *place = shared.alloc_bytes_with(length as u64, &options)? as *mut c_void;
        Ok(())
    })
}

/// Allocates `rows` rows of `row_bytes` zeroed bytes; `options` may be `NULL`, and name no unit. With minipages each row moves between ranks
/// alone: those below a page share pages, each in a view of its own, and longer ones begin on a page each. On one host, and under hlrc, rows
/// are adjacent. `mw_row` gives the address of each.
///
/// # Errors
/// As `mw_shared_alloc_with`; `MW_ERR_ARGUMENT`: no rows, rows of 0 bytes, or options with a unit.
///
/// # Safety
/// As `mw_shared_alloc_with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_alloc_rows(
    shared: Option<&mw_shared_t>,
    rows: u64,
    row_bytes: u64,
    options: *const mw_alloc_options_t,
    place: Option<&mut MaybeUninit<mw_rows_t>>,
) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        // SAFETY: the caller's promise.
        let options = unsafe { self::options(options) }?;
        let place = required(place, "place")?;
        let made: SharedRows<u8> = shared.alloc_rows(rows as usize, row_bytes as usize, &options)?;
        place.write(mw_rows_t { address: made.address(), rows, row_bytes });
        Ok(())
    })
}

/// Returns the address of row number `row` in `*memory`: the same in every rank. It is aligned as `row_bytes` is, up to 64 bytes.
///
/// # Errors
/// `MW_ERR_RANGE`: there is no such row. `MW_ERR_ADDRESS`: the rows are not within the shared memory. `MW_ERR_ARGUMENT`: there are none.
#[unsafe(no_mangle)]
pub extern "C" fn mw_row(
    shared: Option<&mw_shared_t>,
    rows: Option<&mw_rows_t>,
    row: u64,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        let &mw_rows_t { address, rows, row_bytes } = required(rows, "rows")?;
        // SAFETY: only addresses are computed; whoever uses the row made the rows by `mw_shared_alloc_rows`.
        let all = unsafe { SharedRows::<u8>::from_address(shared, address, rows as usize, row_bytes as usize) }?;
        if row >= rows {
            let message = format!("row {row} is beyond the last of {rows} rows");
            return Err(Failure { status: mw_status_t::MW_ERR_RANGE, message });
        }
        give(memory, "memory", all.row(row as usize).as_ptr().cast())
    })
}

/// Tells rank `rank` that it will read `length` bytes at `memory`, while this thread continues: it fetches what is missing there, as by
/// `mw_shared_prefetch`, at most 16 minipages at a time. A hint, without effect on one host and under hlrc.
///
/// # Errors
/// `MW_ERR_ADDRESS`: the bytes are not within the shared memory. `MW_ERR_RANGE`: no rank has this number. `MW_ERR_ARGUMENT`: it is this rank.
/// `MW_ERR_GONE`: a rank has left or died.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_push(
    shared: Option<&mw_shared_t>,
    memory: *const c_void,
    length: usize,
    rank: u32,
) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        Ok(shared.push_bytes(memory.addr() as u64, length as u64, rank as usize)?)
    })
}
