//! Imports: the right to store into another rank's memory, or to fetch from it.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::time::Duration;

use mapwire::{Import, Key, ProxyAddress, Rights};

use crate::arguments::{self, flag, free, get, make, new_object, required};
use crate::export::MW_TOKEN_BYTES;
use crate::failure::{Failure, call};
use crate::growing::{self, Growing};
use crate::memory;
use crate::node::mw_node_t;
use crate::status::mw_status_t;

/// Options of an import. Set all of it to zero, `size` to `sizeof(mw_import_options_t)`, then the fields that differ: zero is the default
/// of each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mw_import_options_t {
    /// `sizeof(mw_import_options_t)`.
    pub size: usize,
    /// How long to wait for the export, in nanoseconds; 0: `MAPWIRE_TIMEOUT` (30 s unless set).
    pub timeout_ns: u64,
    /// Rights to request: `MW_RIGHT_STORE`, `MW_RIGHT_FETCH`, or both, and no more than the export allows; 0: all that it allows.
    pub rights: u32,
    /// Zero.
    pub reserved: u32,
    /// The token to show, if not all zero.
    pub token: [u8; MW_TOKEN_BYTES],
}

// SAFETY: `repr(C)`; the size comes first; two words, two half words and 16 bytes make no padding; numbers.
unsafe impl Growing for mw_import_options_t {
    const NAME: &'static str = "mw_import_options_t";
    const FIRST: usize = 40;
}

/// The right to store into another rank's memory, or to fetch from it. Several threads may use it at once; what one thread sends arrives
/// in order.
#[derive(Debug)]
pub struct mw_import_t {
    pub(crate) import: Import,
}

/// The import, and what it is to store at `offset`.
///
/// # Safety
/// `data` points to `length` readable bytes, for as long as `'d` lasts; or the call is refused here.
#[inline]
pub(crate) unsafe fn to_send<'d>(
    import: Option<&mw_import_t>,
    data: *const c_void,
    length: usize,
    offset: u64,
) -> Result<(&Import, &'d [u8]), Failure> {
    let import = &required(import, "import")?.import;
    memory::check_range(offset, length, import.len())?;
    // SAFETY: the caller's promise.
    Ok((import, unsafe { memory::source(data, length, "data") }?))
}

/// Imports what rank `rank` exports, or will export, as `name`: waits for it. `options` may be `NULL`; `name` and `options` are copied.
///
/// Free `*import` with `mw_import_free`.
///
/// # Errors
/// `MW_ERR_RANGE`: `rank` is not a rank of the job. `MW_ERR_TIMEOUT`: the rank has not exported the name in time. `MW_ERR_REFUSED`: it
/// does not admit this process, or the token is wrong. `MW_ERR_RIGHTS`: it allows less than requested. `MW_ERR_GONE`: it has left or died.
///
/// # Safety
/// `name` ends in a NUL; `options` is as large as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_create(
    node: Option<&mw_node_t>,
    rank: u32,
    name: *const c_char,
    options: *const mw_import_options_t,
    import: Option<&mut MaybeUninit<*mut mw_import_t>>,
) -> mw_status_t {
    make(import, "import", || {
        let node = required(node, "node")?;
        // SAFETY: the caller's promise.
        let name = unsafe { memory::text(name, "name") }?;
        let mut builder = node.node.import(rank as usize, name);
        if !options.is_null() {
            // SAFETY: the caller's promise.
            let options = unsafe { growing::read(options) }?;
            builder = builder.rights(arguments::rights(options.rights, Rights::NONE)?);
            if options.reserved != 0 {
                return Err(Failure::argument(format!(
                    "`reserved` of a mw_import_options_t is {}: set it to 0",
                    options.reserved
                )));
            }
            if options.timeout_ns != 0 {
                builder = builder.timeout(Duration::from_nanos(options.timeout_ns));
            }
            if options.token != Key::ZERO.0 {
                builder = builder.token(Key(options.token));
            }
        }
        Ok(mw_import_t { import: builder.start()? })
    })
}

/// Frees the import. Sends begun with it continue. `NULL` is no error.
///
/// # Safety
/// No other thread is in a call with `import`, or uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_free(import: Option<Box<mw_import_t>>) -> mw_status_t {
    free(import)
}

/// Returns the length of the export in bytes in `*length`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_len(import: Option<&mw_import_t>, length: Option<&mut MaybeUninit<u64>>) -> mw_status_t {
    get(length, "length", || Ok(required(import, "import")?.import.len()))
}

/// Returns the exporting rank in `*rank`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_rank(import: Option<&mw_import_t>, rank: Option<&mut MaybeUninit<u32>>) -> mw_status_t {
    // A job has fewer than 2^16 ranks.
    get(rank, "rank", || Ok(required(import, "import")?.import.rank() as u32))
}

/// Returns the rights in `*rights`: `MW_RIGHT_STORE`, `MW_RIGHT_FETCH` or both.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_rights(import: Option<&mw_import_t>, rights: Option<&mut MaybeUninit<u32>>) -> mw_status_t {
    get(rights, "rights", || Ok(required(import, "import")?.import.rights().bits()))
}

/// Returns whether the exporter's memory is mapped here in `*direct` (1 or 0). A send is then a copy, which the MMU checks.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_is_direct(
    import: Option<&mw_import_t>,
    direct: Option<&mut MaybeUninit<i32>>,
) -> mw_status_t {
    get(direct, "direct", || Ok(flag(required(import, "import")?.import.is_direct())))
}

/// Returns in `*pointer` where bytes `offset` to `offset + length` of the export are mapped here, until the import is freed; only for
/// loads without `MW_RIGHT_STORE`. Loads and stores there need no call. After a revocation stores reach nobody. Stores there wake nobody:
/// an exporter that sleeps in `mw_export_wait_signal` sees them within 10 ms. If the call fails, `*pointer` becomes `NULL`.
///
/// # Errors
/// `MW_ERR_RANGE`: a range outside the export. `MW_ERR_ADDRESS`: some of it is not mapped here: the export, or a part of it, takes the
/// ring path.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_pointer(
    import: Option<&mw_import_t>,
    offset: u64,
    length: usize,
    pointer: Option<&mut MaybeUninit<*mut c_void>>,
) -> mw_status_t {
    call(|| {
        let place = new_object(pointer, "pointer")?;
        let import = &required(import, "import")?.import;
        memory::check_range(offset, length, import.len())?;
        import.node().check_process()?;
        match import.pointer(offset, length as u64) {
            Some(mapped) => {
                *place = mapped.cast();
                Ok(())
            }
            None => Err(Failure {
                status: mw_status_t::MW_ERR_ADDRESS,
                message: format!(
                    "{length} bytes at {offset} of the import are not all mapped in this process: store with mw_import_send, which takes the ring path, or let the exporter export a whole buffer of mw_buffer_alloc"
                ),
            }),
        }
    })
}

/// Returns the first proxy address of this import in `*address`. It and those that follow, one for each byte, name the bytes of the export
/// among all imports of this process, for `mw_node_send_to` and similar calls. It is a number, not a pointer: there is no memory behind
/// it. Never 0, and never reused.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_proxy_address(
    import: Option<&mw_import_t>,
    address: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    get(address, "address", || Ok(required(import, "import")?.import.proxy_address().get()))
}

/// Stores `length` bytes at `offset` of the export. Returns once `data` may be reused. Delivery is not confirmed: the exporter may still
/// refuse what has left, if it revokes the export meanwhile. `mw_import_flush` confirms delivery. What this process sends to another
/// arrives in order. Once this process knows that the export is revoked, every send fails.
///
/// # Errors
/// `MW_ERR_RANGE`: a range outside the export. `MW_ERR_RIGHTS`: no right to store. `MW_ERR_REVOKED`: the export was revoked.
/// `MW_ERR_GONE`: the exporter has left or died. `MW_ERR_LIMIT`: pages of `data` cannot be pinned. A long send can fail after a part of it
/// has left: the message then gives an upper bound on the bytes that may have been stored. Otherwise nothing of it was stored.
///
/// # Safety
/// `data` points to `length` readable bytes (it may be `NULL` if there are none), which no thread changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_send(
    import: Option<&mw_import_t>,
    data: *const c_void,
    length: usize,
    offset: u64,
) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        let (import, data) = unsafe { to_send(import, data, length, offset) }?;
        Ok(import.send(data, offset)?)
    })
}

/// Stores `length` bytes at `offset`, then the 8 bytes of `value` at `signal_offset`, in this order: whoever sees the value, by
/// `mw_export_wait_signal` or an acquiring load, sees the data. `length` may be 0.
///
/// # Errors
/// As `mw_import_send`, and `MW_ERR_ALIGNMENT`: `signal_offset` is not a multiple of 8.
///
/// # Safety
/// As `mw_import_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_put_signal(
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
        Ok(import.put_signal(data, offset, signal_offset, value)?)
    })
}

/// Stores `length` bytes at `offset`, and has the export's `notify` called after delivery.
///
/// # Errors
/// As `mw_import_send`.
///
/// # Safety
/// As `mw_import_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_send_notify(
    import: Option<&mw_import_t>,
    data: *const c_void,
    length: usize,
    offset: u64,
) -> mw_status_t {
    call(|| {
        // SAFETY: the caller's promise.
        let (import, data) = unsafe { to_send(import, data, length, offset) }?;
        Ok(import.send_notify(data, offset)?)
    })
}

/// Waits until everything that this process has sent by this import is in place at the exporter. Needs no right to fetch. On the direct
/// path it is a fence and a check of the exporter's status; on the ring path a message to the exporter and back.
///
/// # Errors
/// `MW_ERR_REVOKED`: sends since the last flush were not stored; the message says how many, and the first of them, as far as known.
/// `MW_ERR_LIMIT`: the same, because the exporter could not pin its pages. On the ring path each is reported by one flush, including those
/// that failed midway with an error of their own; on the direct path every flush after a revocation fails, since it is unknown what the
/// exporter still saw. `MW_ERR_GONE`: the exporter has left or died: it is unknown which sends were stored.
#[unsafe(no_mangle)]
pub extern "C" fn mw_import_flush(import: Option<&mw_import_t>) -> mw_status_t {
    call(|| Ok(required(import, "import")?.import.flush()?))
}

/// Copies `length` bytes from `offset` of the export to `into`. They are in place when it returns.
///
/// # Errors
/// As `mw_import_send`, for the right to fetch.
///
/// # Safety
/// `into` points to `length` writable bytes (it may be `NULL` if there are none), which no thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_import_fetch(
    import: Option<&mw_import_t>,
    offset: u64,
    into: *mut c_void,
    length: usize,
) -> mw_status_t {
    call(|| {
        let import = &required(import, "import")?.import;
        memory::check_range(offset, length, import.len())?;
        // SAFETY: the caller's promise.
        let into = unsafe { memory::target(into, length, "into") }?;
        Ok(import.fetch(offset, into)?)
    })
}

/// Stores `length` bytes at proxy address `to`: `mw_import_proxy_address` plus an offset. Equivalent to `mw_import_send` to the import
/// that has the address.
///
/// # Errors
/// As `mw_import_send`; `MW_ERR_ADDRESS`: no import has the address, or its import has been freed. `MW_ERR_RANGE`: the bytes pass the end
/// of the import.
///
/// # Safety
/// As `mw_import_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_send_to(
    node: Option<&mw_node_t>,
    to: u64,
    data: *const c_void,
    length: usize,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::source(data, length, "data") }?;
        Ok(node.send_to(ProxyAddress::new(to), data)?)
    })
}

/// Stores `length` bytes at proxy address `to`, then the 8 bytes of `value` at proxy address `signal` of the same import, in
/// this order, as `mw_import_put_signal` does. `length` may be 0.
///
/// # Errors
/// As `mw_import_put_signal` and `mw_node_send_to`; `MW_ERR_ARGUMENT`: the addresses are in different imports.
///
/// # Safety
/// As `mw_import_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_put_signal_to(
    node: Option<&mw_node_t>,
    to: u64,
    data: *const c_void,
    length: usize,
    signal: u64,
    value: u64,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::source(data, length, "data") }?;
        let (to, signal) = (ProxyAddress::new(to), ProxyAddress::new(signal));
        Ok(node.put_signal_to(to, data, signal, value)?)
    })
}

/// Copies `length` bytes from proxy address `from` to `into`, as `mw_import_fetch` does.
///
/// # Errors
/// As `mw_import_fetch` and `mw_node_send_to`.
///
/// # Safety
/// As `mw_import_fetch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_fetch_from(
    node: Option<&mw_node_t>,
    from: u64,
    into: *mut c_void,
    length: usize,
) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        // SAFETY: the caller's promise.
        let into = unsafe { memory::target(into, length, "into") }?;
        Ok(node.fetch_from(ProxyAddress::new(from), into)?)
    })
}
