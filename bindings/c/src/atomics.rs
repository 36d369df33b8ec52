//! Atomic operations on words of an export, and signals that add or set bits.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use crate::arguments::required;
use crate::failure::{Failure, call};
use crate::import::mw_import_t;
use crate::memory;
use crate::status::mw_status_t;

/// Writes the old value of a word, if it is wanted.
fn tell<T>(old: Option<&mut MaybeUninit<T>>, value: T) -> Result<(), Failure> {
    if let Some(old) = old {
        old.write(value);
    }
    Ok(())
}

/// Adds `value` to the 64-bit word at `offset`, wrapping. The old value is written to `*old`, which may be `NULL`. The operation is atomic
/// with the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
/// everything that this process has sent to the exporter.
///
/// # Errors
/// As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 8. The word is unchanged then,
/// unless the exporter revokes the export or goes during the call.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_fetch_add_u64(
    import: Option<&mw_import_t>,
    offset: u64,
    value: u64,
    old: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        tell(old, import.fetch_add_u64(offset, value)?)
    })
}

/// Stores `value` in the 64-bit word at `offset`. The old value is written to `*old`, which may be `NULL`. The operation is atomic with
/// the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
/// everything that this process has sent to the exporter.
///
/// # Errors
/// As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 8. The word is unchanged then,
/// unless the exporter revokes the export or goes during the call.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_swap_u64(
    import: Option<&mw_import_t>,
    offset: u64,
    value: u64,
    old: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        tell(old, import.swap_u64(offset, value)?)
    })
}

/// Stores `value` in the 64-bit word at `offset` if that holds `expected`, which `*old` then equals. The old value is written to `*old`,
/// which may be `NULL`. The operation is atomic with the others, with those of all ranks by either path, and with the exporter's own
/// atomics on that memory. It takes effect after everything that this process has sent to the exporter.
///
/// # Errors
/// As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 8. The word is unchanged then,
/// unless the exporter revokes the export or goes during the call.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_compare_swap_u64(
    import: Option<&mw_import_t>,
    offset: u64,
    expected: u64,
    value: u64,
    old: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        tell(old, import.compare_swap_u64(offset, expected, value)?)
    })
}

/// Adds `value` to the 32-bit word at `offset`, wrapping. The old value is written to `*old`, which may be `NULL`. The operation is atomic
/// with the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
/// everything that this process has sent to the exporter.
///
/// # Errors
/// As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4. The word is unchanged then,
/// unless the exporter revokes the export or goes during the call.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_fetch_add_u32(
    import: Option<&mw_import_t>,
    offset: u64,
    value: u32,
    old: Option<&mut MaybeUninit<u32>>,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        tell(old, import.fetch_add_u32(offset, value)?)
    })
}

/// Stores `value` in the 32-bit word at `offset`. The old value is written to `*old`, which may be `NULL`. The operation is atomic with
/// the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
/// everything that this process has sent to the exporter.
///
/// # Errors
/// As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4. The word is unchanged then,
/// unless the exporter revokes the export or goes during the call.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_swap_u32(
    import: Option<&mw_import_t>,
    offset: u64,
    value: u32,
    old: Option<&mut MaybeUninit<u32>>,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        tell(old, import.swap_u32(offset, value)?)
    })
}

/// Stores `value` in the 32-bit word at `offset` if that holds `expected`, which `*old` then equals. The old value is written to `*old`,
/// which may be `NULL`. The operation is atomic with the others, with those of all ranks by either path, and with the exporter's own
/// atomics on that memory. It takes effect after everything that this process has sent to the exporter.
///
/// # Errors
/// As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4. The word is unchanged then,
/// unless the exporter revokes the export or goes during the call.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_compare_swap_u32(
    import: Option<&mw_import_t>,
    offset: u64,
    expected: u32,
    value: u32,
    old: Option<&mut MaybeUninit<u32>>,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        tell(old, import.compare_swap_u32(offset, expected, value)?)
    })
}

/// As `mw_import_put_signal`, but adds `value` to the word at `signal_offset`, wrapping.
///
/// # Errors
/// As `mw_import_put_signal`.
///
/// # Safety
/// As `mw_import_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_put_signal_add(
    import: Option<&mw_import_t>,
    data: *const c_void,
    length: usize,
    offset: u64,
    signal_offset: u64,
    value: u64,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        memory::check_range(offset, length, import.len())?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::source(data, length, "data") }?;
        Ok(import.put_signal_add(data, offset, signal_offset, value)?)
    })
}

/// As `mw_import_put_signal`, but sets the bits of `value` in the word at `signal_offset`, and leaves the others.
///
/// # Errors
/// As `mw_import_put_signal`.
///
/// # Safety
/// As `mw_import_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_put_signal_or(
    import: Option<&mw_import_t>,
    data: *const c_void,
    length: usize,
    offset: u64,
    signal_offset: u64,
    value: u64,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        memory::check_range(offset, length, import.len())?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::source(data, length, "data") }?;
        Ok(import.put_signal_or(data, offset, signal_offset, value)?)
    })
}
