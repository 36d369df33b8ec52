//! Atomic operations on words of an export, and signals that add or set bits.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use mapwire::Import;

use crate::arguments::required;
use crate::failure::call;
use crate::import::{mw_import_t, to_send};
use crate::status::mw_status_t;

/// Carries out an operation, and writes the old value of its word if it is wanted.
fn atomic<T>(
    import: Option<&mw_import_t>,
    old: Option<&mut MaybeUninit<T>>,
    operation: impl FnOnce(&Import) -> Result<T, mapwire::Error>,
) -> mw_status_t {
    call(|| {
        let value = operation(&required(import, "import")?.import)?;
        if let Some(old) = old {
            old.write(value);
        }
        Ok(())
    })
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
    atomic(import, old, |it| it.fetch_add_u64(offset, value))
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
    atomic(import, old, |it| it.swap_u64(offset, value))
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
    atomic(import, old, |it| it.compare_swap_u64(offset, expected, value))
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
    atomic(import, old, |it| it.fetch_add_u32(offset, value))
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
    atomic(import, old, |it| it.swap_u32(offset, value))
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
    atomic(import, old, |it| it.compare_swap_u32(offset, expected, value))
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
        // SAFETY: the caller's promise.
        let (import, data) = unsafe { to_send(import, data, length, offset) }?;
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
        // SAFETY: the caller's promise.
        let (import, data) = unsafe { to_send(import, data, length, offset) }?;
        Ok(import.put_signal_or(data, offset, signal_offset, value)?)
    })
}
