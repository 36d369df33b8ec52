//! Memory that all ranks share.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;

use mapwire::Shared;

use crate::arguments::{make, new_object, required};
use crate::failure::call;
use crate::node::mw_node_t;
use crate::status::mw_status_t;
use crate::sync::Published;

/// Memory that all ranks of the job share, at the same addresses, and used like any other memory.
///
/// All ranks on one host: the processor keeps it coherent, and system calls work on it. A child by fork(2) has it too: it may load, store
/// and call `mw_shared_alloc`, `mw_shared_malloc` and its like, `mw_shared_lock`, `mw_shared_unlock`, `mw_shared_barrier`,
/// `mw_shared_barrier_of`, and the functions of mw_sync(3). A child does not close it, and leaves by _exit(2) or exit(3) while its parent has it open.
///
/// On several hosts, or with `--coherence minipages`, it is sequentially consistent: an access that needs another rank faults, and the
/// library's handler (of SIGBUS or SIGSEGV) fetches what it needs: an allocation of up to a page, or a page of a longer one. With `--coherence hlrc` a rank sees what
/// another has written once it has synchronised with it by a lock or a barrier. There system calls do not fault: they fail with EFAULT for
/// such memory, and stdio then loses data. Use `mw_shared_read`, `mw_shared_write`, `mw_shared_fread` and `mw_shared_fwrite`, or private memory. A child by fork(2) does not have the memory: touching it ends the child
/// by SIGSEGV, and a line on stderr says why.
#[derive(Debug)]
pub struct mw_shared_t {
    pub(crate) shared: Shared,
    objects: Published,
}

/// Opens the shared memory. All ranks of the job call it, and it returns when all have. `threads` threads of this rank take part in
/// barriers (usually 1; with a protocol up to 64 may use the memory). The environment sets its size, views, address and fault handling (`MAPWIRE_SHARED`,
/// `MAPWIRE_COHERENCE`, `MAPWIRE_VIEWS`, `MAPWIRE_SHARED_BASE`, `MAPWIRE_FAULTS`, `MAPWIRE_HEAP_DEBUG`), alike in all ranks.
///
/// Close it with `mw_shared_close`.
///
/// # Errors
/// `MW_ERR_EXISTS`: it is open. `MW_ERR_CONFIG`: a setting that is invalid, or differs between ranks. `MW_ERR_LIMIT`, `MW_ERR_SYSTEM`:
/// cannot reserve addresses, map memory or install the fault handler (the message names the setting). `MW_ERR_TIMEOUT`, `MW_ERR_GONE`: a
/// rank does not join in.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_open(
    node: Option<&mw_node_t>,
    threads: u32,
    shared: Option<&mut MaybeUninit<*mut mw_shared_t>>,
) -> mw_status_t {
    make(shared, "shared", || {
        let shared = Shared::open(&required(node, "node")?.node, threads as usize)?;
        let objects = Published::new(shared.objects());
        Ok(mw_shared_t { shared, objects })
    })
}

/// Waits until every rank closes, one thread of each, and frees the memory and `shared`, whatever the code. Do not touch the memory
/// afterwards. `NULL` is no error.
///
/// # Errors
/// `MW_ERR_GONE`: a rank has left or died. `MW_ERR_FORKED`: this is a forked child, and only its own part is freed.
///
/// # Safety
/// No other thread is in a call with `shared`, or uses it or the memory afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_close(shared: Option<Box<mw_shared_t>>) -> mw_status_t {
    call(|| {
        if let Some(object) = shared {
            drop(object.objects);
            object.shared.close()?;
        }
        Ok(())
    })
}

/// Says where the calling thread allocates next, for `mapwire run --summary`: a file and its line. The allocating functions of this header
/// are macros that call it. Elsewhere the function that is called is named.
///
/// # Safety
/// `file` is `NULL`, or a string that lasts as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_place(file: *const c_char, line: u32) {
    if file.is_null() {
        return;
    }
    // SAFETY: the caller promises a string that lasts.
    let text = || unsafe { CStr::from_ptr(file) }.to_str().unwrap_or("(a path that is not UTF-8)");
    mapwire::allocates_at(text, line);
}

/// Allocates `length` zeroed bytes. With minipages up to a page move between ranks as a whole and alone, more page by page. The address, in `*memory`, is the same in
/// every rank: pass it to others by `mw_shared_broadcast`, or through other shared memory. It is aligned to 16 bytes, from 64 bytes on to
/// 64, from a page on to pages. It lasts until the shared memory is closed; on one host `mw_shared_free` may free it before.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: 0 bytes. `MW_ERR_LIMIT`: more than is left.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_alloc(
    shared: Option<&mw_shared_t>,
    length: usize,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        let place = new_object(memory, "memory")?;
        mapwire::allocates_by("mw_shared_alloc");
        *place = shared.alloc_bytes(length as u64)? as *mut c_void;
        Ok(())
    })
}

/// Fetches what is missing here of `length` bytes at `memory` while this thread continues. It is a hint: at most 16 minipages are under
/// way at a time, faults fetch the rest, and another rank may take one away before it is used.
///
/// # Errors
/// `MW_ERR_ADDRESS`: the bytes are not within the shared memory. `MW_ERR_GONE`: a rank has left or died.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_prefetch(
    shared: Option<&mw_shared_t>,
    memory: *const c_void,
    length: usize,
) -> mw_status_t {
    prefetch(shared, memory, length, false)
}

/// As `mw_shared_prefetch`, for stores: no other rank keeps a copy.
///
/// # Errors
/// As `mw_shared_prefetch`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_prefetch_to_write(
    shared: Option<&mw_shared_t>,
    memory: *const c_void,
    length: usize,
) -> mw_status_t {
    prefetch(shared, memory, length, true)
}

fn prefetch(shared: Option<&mw_shared_t>, memory: *const c_void, length: usize, writes: bool) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        Ok(shared.prefetch_all(&[(memory.addr() as u64, length as u64, writes)])?)
    })
}

/// Waits until all participating threads of every rank have arrived.
///
/// # Errors
/// `MW_ERR_GONE`: a rank has left or died.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_barrier(shared: Option<&mw_shared_t>) -> mw_status_t {
    call(|| Ok(required(shared, "shared")?.shared.barrier()?))
}

/// As `mw_shared_barrier`, for barrier number `barrier` of 256 independent ones. `mw_shared_barrier` is number 0.
///
/// # Errors
/// As `mw_shared_barrier`, and `MW_ERR_RANGE`: no barrier has this number.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_barrier_of(shared: Option<&mw_shared_t>, barrier: u32) -> mw_status_t {
    call(|| Ok(required(shared, "shared")?.shared.barrier_of(barrier)?))
}

/// Tells the library that the program has installed signal handlers since the memory was opened, and that they may touch it. Takes about
/// 20 microseconds.
///
/// # Errors
/// Only `MW_ERR_ARGUMENT`: `shared` is `NULL`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_notice_handlers(shared: Option<&mw_shared_t>) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        shared.node().check_process()?;
        shared.notice_handlers();
        Ok(())
    })
}

/// Takes lock number `lock` of 4096, the same in every rank. Locks are granted in the order of requests. Release it in the same thread
/// with `mw_shared_unlock`.
///
/// # Errors
/// `MW_ERR_RANGE`: no lock has this number. `MW_ERR_STATE`: this thread holds it. `MW_ERR_GONE`: a rank has left or died.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_lock(shared: Option<&mw_shared_t>, lock: u32) -> mw_status_t {
    call(|| {
        let guard = required(shared, "shared")?.shared.lock(lock)?;
        // The program releases it.
        core::mem::forget(guard);
        Ok(())
    })
}

/// Releases a lock.
///
/// # Errors
/// `MW_ERR_RANGE`: no lock has this number. `MW_ERR_STATE`: this thread does not hold it.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_unlock(shared: Option<&mw_shared_t>, lock: u32) -> mw_status_t {
    call(|| Ok(required(shared, "shared")?.shared.unlock(lock)?))
}

/// Copies `*value` of rank `root` to `*value` of all ranks. One thread of each rank calls it, with the same root; other ranks need not set
/// `*value`.
///
/// # Errors
/// `MW_ERR_RANGE`: `root` is not a rank of the job. `MW_ERR_STATE`: ranks name different roots, or another thread of this rank is in a
/// broadcast. `MW_ERR_GONE`: a rank has left or died.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_broadcast(
    shared: Option<&mw_shared_t>,
    root: u32,
    value: Option<&mut MaybeUninit<u64>>,
) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        let value = required(value, "value")?;
        let mine = if shared.node().rank() == root as usize {
            // SAFETY: the root has set it, as documented above; any 8 bytes are a number.
            unsafe { value.assume_init_read() }
        } else {
            0
        };
        let all = shared.broadcast(root as usize, mine)?;
        value.write(all);
        Ok(())
    })
}

/// Changes how many threads of this rank take part in barriers, while none waits in one: 1 to 64, or 32767 if all ranks are on one host.
/// Those of its children by fork(2) count there too: a rank with three children that meet says 4, before or after it forks them.
///
/// # Errors
/// `MW_ERR_LIMIT`: 0, too many, or some threads wait.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_set_threads(shared: Option<&mw_shared_t>, threads: u32) -> mw_status_t {
    call(|| Ok(required(shared, "shared")?.shared.set_threads(threads as usize)?))
}
