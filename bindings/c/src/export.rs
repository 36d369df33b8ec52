//! Exports: memory that others may store into or fetch from.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::time::Duration;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use mapwire::{Export, ExportBuilder, Importers, Key, NodeId, Rights};

use crate::arguments::{self, get, make, required};
use crate::buffer::mw_buffer_t;
use crate::failure::{Failure, call};
use crate::growing::{self, Growing};
use crate::memory;
use crate::node::mw_node_t;
use crate::notify::{Callback, Gate, mw_notify_fn};
use crate::status::mw_status_t;

/// Importers may store.
pub const MW_RIGHT_STORE: u32 = 1;
/// Importers may fetch.
pub const MW_RIGHT_FETCH: u32 = 2;

/// Every rank of the job may import it.
pub const MW_IMPORTERS_JOB: u32 = 0;
/// Processes of one user may: `user` of the options.
pub const MW_IMPORTERS_USER: u32 = 1;
/// Listed ranks may: `nodes` and `node_count` of the options.
pub const MW_IMPORTERS_NODES: u32 = 2;
/// Any process that shows a token may: `token` of the options.
pub const MW_IMPORTERS_TOKEN: u32 = 3;

/// For `flags` of an export's options: use the ring path even if importers could map the memory, which then does not move, and which
/// `mw_export_redirect` requires.
pub const MW_EXPORT_RING_ONLY: u32 = 1;

/// Bytes of a token.
pub const MW_TOKEN_BYTES: usize = 16;

/// Wait without limit.
pub const MW_FOREVER: u64 = u64::MAX;

/// Options of an export. Set all of it to zero, `size` to `sizeof(mw_export_options_t)`, then the fields that differ: zero is the default
/// of each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mw_export_options_t {
    /// `sizeof(mw_export_options_t)`.
    pub size: usize,
    /// What importers may do: `MW_RIGHT_STORE`, `MW_RIGHT_FETCH`, or both; 0 means both. Memory mapped for storing can also be read, so an
    /// export that allows only stores takes the ring path.
    pub rights: u32,
    /// Who may import it: one of `MW_IMPORTERS_*`.
    pub importers: u32,
    /// The user's numeric id, for `MW_IMPORTERS_USER`.
    pub user: u32,
    /// `MW_EXPORT_RING_ONLY`, or 0.
    pub flags: u32,
    /// The ranks that may import it, for `MW_IMPORTERS_NODES`; copied.
    pub nodes: *const u32,
    /// Number of these ranks; 0 is an error.
    pub node_count: usize,
    /// The token to be shown, for `MW_IMPORTERS_TOKEN`; not all zero.
    pub token: [u8; MW_TOKEN_BYTES],
    /// Called on deliveries by `mw_import_send_notify`; or `NULL`.
    pub notify: mw_notify_fn,
    /// Passed to `notify`; not used otherwise.
    pub notify_data: *mut c_void,
}

// SAFETY: `repr(C)`; the size comes first; seven words and four half words make no padding; and zeroes are a value of every
// field (`NULL` of the function).
unsafe impl Growing for mw_export_options_t {
    const NAME: &'static str = "mw_export_options_t";
    const FIRST: usize = 72;
}

/// Exported memory: others may store into it or fetch from it, until `mw_export_revoke`. Several threads may use it at once.
#[derive(Debug)]
pub struct mw_export_t {
    /// Locked for writing only to redirect.
    export: RwLock<Export>,
    gate: Option<Arc<Gate>>,
}

impl mw_export_t {
    pub(crate) fn read(&self) -> Result<RwLockReadGuard<'_, Export>, Failure> {
        match self.export.try_read() {
            Ok(export) => Ok(export),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::state("another thread redirects this export: call again when it is done"))
            }
        }
    }

    fn write(&self) -> Result<RwLockWriteGuard<'_, Export>, Failure> {
        match self.export.try_write() {
            Ok(export) => Ok(export),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::state("another thread reads this export or waits in it: redirect it when no thread does"))
            }
        }
    }
}

/// The importers that the options name.
///
/// # Safety
/// `options.nodes` points to `options.node_count` numbers.
unsafe fn importers(options: &mw_export_options_t) -> Result<Importers, Failure> {
    match options.importers {
        MW_IMPORTERS_JOB => Ok(Importers::Job),
        MW_IMPORTERS_USER => Ok(Importers::User(options.user)),
        MW_IMPORTERS_NODES => {
            // SAFETY: the caller's promise.
            let ranks = unsafe { memory::values(options.nodes, options.node_count, "nodes") }?;
            if ranks.is_empty() {
                return Err(Failure::argument("an export for listed ranks lists none: set `nodes` and `node_count`"));
            }
            let node = |&rank: &u32| u16::try_from(rank).map(NodeId).map_err(|_| rank);
            let nodes: Result<Vec<_>, u32> = ranks.iter().map(node).collect();
            nodes.map(Importers::Nodes).map_err(|rank| Failure {
                status: mw_status_t::MW_ERR_RANGE,
                message: format!("rank {rank} in `nodes` is in no job: ranks are below 65536"),
            })
        }
        MW_IMPORTERS_TOKEN if options.token == Key::ZERO.0 => {
            Err(Failure::argument("the token of an export is all zero, which means none: draw one at random"))
        }
        MW_IMPORTERS_TOKEN => Ok(Importers::Token(Key(options.token))),
        other => {
            Err(Failure::argument(format!("unknown importers {other}: use MW_IMPORTERS_JOB, _USER, _NODES or _TOKEN")))
        }
    }
}

/// Makes an export with these options.
///
/// # Safety
/// `name` ends in a NUL; `options` is `NULL` or as its size says, and its fields as their descriptions say.
unsafe fn create(
    builder: ExportBuilder<'_>,
    name: *const c_char,
    options: *const mw_export_options_t,
) -> Result<mw_export_t, Failure> {
    // SAFETY: the caller's promise.
    let mut builder = builder.name(unsafe { memory::text(name, "name") }?);
    let mut gate = None;
    if !options.is_null() {
        // SAFETY: the caller's promise.
        let options = unsafe { growing::read(options) }?;
        builder = builder.rights(arguments::rights(options.rights, Rights::ALL)?);
        // SAFETY: the caller's promise.
        builder = builder.importers(unsafe { importers(&options) }?);
        match options.flags {
            0 => {}
            MW_EXPORT_RING_ONLY => builder = builder.ring_only(),
            other => {
                return Err(Failure::argument(format!("unknown flags {other:#x}: use MW_EXPORT_RING_ONLY or 0")));
            }
        }
        if let Some(function) = options.notify {
            let made = Arc::new(Gate::default());
            builder = builder.on_notify(made.handler(Callback::new(function, options.notify_data)));
            gate = Some(made);
        }
    }
    Ok(mw_export_t { export: RwLock::new(builder.start()?), gate })
}

/// Exports a buffer under `name`: 1 to 255 bytes of UTF-8, unique among this process's exports. Whole buffers take the direct path, unless
/// the options forbid it. `options` may be `NULL`; `name` and `options` are copied.
///
/// End the export with `mw_export_revoke`.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: an invalid name, option or structure. `MW_ERR_EXISTS`: the name is taken. `MW_ERR_LIMIT`: more pages than may be
/// pinned, or a full table. Nothing is exported then.
///
/// # Safety
/// `name` ends in a NUL. `options` is as large as its `size` says, `options->nodes` points to `node_count` numbers, and
/// `options->notify` can be called from any thread until the export is revoked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_export_create(
    node: Option<&mw_node_t>,
    buffer: Option<&mw_buffer_t>,
    name: *const c_char,
    options: *const mw_export_options_t,
    exported: Option<&mut MaybeUninit<*mut mw_export_t>>,
) -> mw_status_t {
    make(exported, "exported", || {
        let node = required(node, "node")?;
        let builder = node.node.export_buffer(&required(buffer, "buffer")?.buffer);
        // SAFETY: the caller's promise.
        unsafe { create(builder, name, options) }
    })
}

/// Exports `length` bytes of any memory: heap, stack, static, or a part of a buffer. Whole pages of heap and statics move, in place, to
/// memory that importers map, until the export is revoked; other threads may store there meanwhile, system calls may not. The rest takes
/// the ring path: this process stores what arrives, so that neighbours on the same page stay private. Otherwise as `mw_export_create`.
///
/// # Errors
/// As `mw_export_create`, and `MW_ERR_ADDRESS`: memory that this process may not read and write, or shared memory.
///
/// # Safety
/// As `mw_export_create`. The memory stays mapped until the export has been revoked. Other ranks may change it at any time:
/// read it with `mw_export_read`, atomics, or after a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_export_create_range(
    node: Option<&mw_node_t>,
    memory: *mut c_void,
    length: usize,
    name: *const c_char,
    options: *const mw_export_options_t,
    exported: Option<&mut MaybeUninit<*mut mw_export_t>>,
) -> mw_status_t {
    make(exported, "exported", || {
        let node = required(node, "node")?;
        if memory.is_null() {
            return Err(arguments::null("memory"));
        }
        // SAFETY: the caller keeps the memory mapped until it revokes the export, and bears that others change it.
        let builder = unsafe { node.node.export_range(memory.cast(), length) };
        // SAFETY: the caller's promise.
        unsafe { create(builder, name, options) }
    })
}

/// Returns its length in bytes in `*length`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_export_len(exported: Option<&mw_export_t>, length: Option<&mut MaybeUninit<u64>>) -> mw_status_t {
    get(length, "length", || Ok(required(exported, "exported")?.read()?.len()))
}

/// Copies `length` bytes from `offset` of the exported memory to `into`. Concurrent stores of others may be copied in part.
///
/// # Errors
/// `MW_ERR_RANGE`: a range outside the export.
///
/// # Safety
/// `into` points to `length` writable bytes outside the exported memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_export_read(
    exported: Option<&mw_export_t>,
    offset: u64,
    into: *mut c_void,
    length: usize,
) -> mw_status_t {
    call(|| {
        let export = required(exported, "exported")?.read()?;
        memory::check_range(offset, length, export.len())?;
        // SAFETY: the caller's promise.
        let into = unsafe { memory::target(into, length, "into") }?;
        Ok(export.read(offset, into)?)
    })
}

/// Copies `length` bytes from `from` to `offset` of the exported memory.
///
/// # Errors
/// `MW_ERR_RANGE`: a range outside the export.
///
/// # Safety
/// `from` points to `length` readable bytes outside the exported memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_export_write(
    exported: Option<&mw_export_t>,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> mw_status_t {
    call(|| {
        let export = required(exported, "exported")?.read()?;
        memory::check_range(offset, length, export.len())?;
        // SAFETY: the caller's promise.
        let from = unsafe { memory::source(from, length, "from") }?;
        Ok(export.write(offset, from)?)
    })
}

/// Loads the signal at `offset` into `*value`. What was put before it (`mw_import_put_signal`) is visible then.
///
/// # Errors
/// `MW_ERR_RANGE`, `MW_ERR_ALIGNMENT`: a signal is 8 bytes of the export, aligned in memory.
#[unsafe(no_mangle)]
pub extern "C" fn mw_export_signal(
    exported: Option<&mw_export_t>,
    offset: u64,
    value: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    get(value, "value", || Ok(required(exported, "exported")?.read()?.signal(offset)?))
}

/// Waits until the signal at `offset` is at least `value`, for `timeout_ns` nanoseconds at most (`MW_FOREVER`: without limit). Returns its
/// value then in `*seen`, which may be `NULL`. Serves others meanwhile, and waits as `MAPWIRE_WAIT` says.
///
/// # Errors
/// `MW_ERR_TIMEOUT`: the timeout has expired. `MW_ERR_GONE`: with `MW_FOREVER`, every rank that may import the export has left or died.
/// `MW_ERR_RANGE`, `MW_ERR_ALIGNMENT`: a signal is 8 bytes of the export, aligned in memory.
#[unsafe(no_mangle)]
pub extern "C" fn mw_export_wait_signal(
    exported: Option<&mw_export_t>,
    offset: u64,
    value: u64,
    timeout_ns: u64,
    seen: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    call(|| {
        let export = required(exported, "exported")?.read()?;
        let timeout = (timeout_ns != MW_FOREVER).then(|| Duration::from_nanos(timeout_ns));
        let Some(found) = export.wait_signal_for(offset, value, timeout)? else {
            return Err(Failure {
                status: mw_status_t::MW_ERR_TIMEOUT,
                message: format!(
                    "the signal at offset {offset} is {} after {:?}, and {value} was waited for: does the sender run, and send so much?",
                    export.signal(offset)?,
                    Duration::from_nanos(timeout_ns)
                ),
            });
        };
        if let Some(seen) = seen {
            seen.write(found);
        }
        Ok(())
    })
}

/// Replaces the exported memory by `buffer` until `mw_export_redirect_back`: others' stores land there, at the same offsets, and their
/// fetches read there; `mw_export_read`, `mw_export_write`, `mw_export_signal` and `mw_export_wait_signal` use it too. The export keeps
/// the buffer's memory as long as it needs it.
///
/// # Errors
/// `MW_ERR_RANGE`: the buffer is shorter than the export.
/// `MW_ERR_STATE`: an export whose importers may have mapped it (make it with `MW_EXPORT_RING_ONLY`), or another thread is in
/// a call with this export. `MW_ERR_LIMIT`: more pages than may be pinned.
#[unsafe(no_mangle)]
pub extern "C" fn mw_export_redirect(exported: Option<&mw_export_t>, buffer: Option<&mw_buffer_t>) -> mw_status_t {
    call(|| {
        let export = required(exported, "exported")?;
        let buffer = required(buffer, "buffer")?;
        Ok(export.write()?.redirect(&buffer.buffer)?)
    })
}

/// Ends a redirection: others use the exported memory again.
///
/// # Errors
/// `MW_ERR_STATE`: as `mw_export_redirect`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_export_redirect_back(exported: Option<&mw_export_t>) -> mw_status_t {
    call(|| Ok(required(exported, "exported")?.write()?.redirect_back()?))
}

/// Revokes the export at once, and frees `exported`, whatever the code. Importers' sends fail from here on with `MW_ERR_REVOKED`; memory
/// that they have mapped becomes theirs alone, since this process continues with a copy at the same address. The export's `notify` has
/// ended, or ends before this returns; it may itself be the caller. `NULL` is no error.
///
/// # Errors
/// `MW_ERR_LIMIT`: no memory for the copy: importers that have mapped the memory still see it.
///
/// # Safety
/// No other thread is in a call with `exported`, or uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_export_revoke(exported: Option<Box<mw_export_t>>) -> mw_status_t {
    call(|| {
        let Some(object) = exported else {
            return Ok(());
        };
        let mw_export_t { export, gate } = *object;
        let outcome = export.into_inner().unwrap_or_else(PoisonError::into_inner).revoke();
        // In a forked child, a thread of the parent may have been within, and never comes out.
        if let Some(gate) = gate
            && !matches!(outcome, Err(mapwire::Error::Forked(_)))
        {
            gate.close();
        }
        Ok(outcome?)
    })
}
