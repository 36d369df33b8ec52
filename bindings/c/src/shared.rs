//! Memory that all ranks share.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use mapwire::Shared;

use crate::arguments::{new_object, required};
use crate::failure::call;
use crate::node::mw_node_t;
use crate::status::mw_status_t;

/// Memory that all ranks of the job share, at the same addresses. It is sequentially consistent, and used like any other
/// memory: an access that needs another rank faults, and the library's handler (of SIGBUS or SIGSEGV) fetches what it needs,
/// one allocation at a time, as a whole.
///
/// System calls do not fault: they give EFAULT for such memory, and stdio then loses data. Use `mw_shared_read`,
/// `mw_shared_write`, `mw_shared_fread` and `mw_shared_fwrite`, or private memory. A child by fork(2) does not have it:
/// it dies of SIGSEGV where it touches it, and a line on stderr says why.
#[derive(Debug)]
pub struct mw_shared_t {
    pub(crate) shared: Shared,
}

/// Opens the shared memory. All ranks of the job call it, and it returns when all have. `threads` threads of this rank take
/// part in barriers (usually 1; up to 64 may use the memory). Its size, views, place and fault handling come from the
/// environment (`MAPWIRE_SHARED`, `MAPWIRE_VIEWS`, `MAPWIRE_SHARED_BASE`, `MAPWIRE_FAULTS`), alike in all ranks.
///
/// Close it with `mw_shared_close`.
///
/// # Errors
/// `MW_ERR_EXISTS`: it is open. `MW_ERR_CONFIG`: a setting that is not valid, or not alike. `MW_ERR_LIMIT`, `MW_ERR_SYSTEM`:
/// no address space, mappings or faults are to be had (the message names the setting). `MW_ERR_TIMEOUT`, `MW_ERR_GONE`: a rank
/// does not come.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_open(
    node: Option<&mw_node_t>,
    threads: u32,
    shared: Option<&mut MaybeUninit<*mut mw_shared_t>>,
) -> mw_status_t {
    call(|| {
        let place = new_object(shared, "shared")?;
        let shared = Shared::open(&required(node, "node")?.node, threads as usize)?;
        *place = Box::into_raw(Box::new(mw_shared_t { shared }));
        Ok(())
    })
}

/// Waits until every rank closes, one thread of each, and gives the memory and `shared` back, whatever the code. The memory is
/// not to be touched afterwards. `NULL` is no error.
///
/// # Errors
/// `MW_ERR_GONE`: a rank has left or died.
///
/// # Safety
/// No other thread is in a call with `shared`, or uses it or the memory afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_close(shared: Option<Box<mw_shared_t>>) -> mw_status_t {
    call(|| {
        if let Some(object) = shared {
            object.shared.close()?;
        }
        Ok(())
    })
}

/// Allocates `length` zeroed bytes as a unit that moves between ranks as a whole and alone. Its address, in `*memory`, is the
/// same in every rank: tell it to others by `mw_shared_broadcast`, or through other shared memory. It is aligned to 16 bytes,
/// from 64 on to 64, from a page on to pages. It stands until the shared memory is closed.
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
        *place = shared.alloc_bytes(length as u64)? as *mut c_void;
        Ok(())
    })
}

/// Fetches what of `length` bytes at `memory` is not here while this thread goes on. It is a hint: at most 16 allocations are on
/// their way at a time, faults fetch the rest, and another rank may take one away before it is used.
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

/// As `mw_shared_prefetch`, to store there: no other rank keeps a copy.
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

/// Waits until every rank has got here, and all its threads that take part.
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
/// As `mw_shared_barrier`, and `MW_ERR_RANGE`: a number beyond the last.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_barrier_of(shared: Option<&mw_shared_t>, barrier: u32) -> mw_status_t {
    call(|| Ok(required(shared, "shared")?.shared.barrier_of(barrier)?))
}

/// Says that the program has installed signal handlers since the memory was opened, and that they may touch it. Takes about
/// 20 microseconds.
///
/// # Errors
/// None but `MW_ERR_ARGUMENT`: no `shared`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_notice_handlers(shared: Option<&mw_shared_t>) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        shared.node().check_process()?;
        shared.notice_handlers();
        Ok(())
    })
}

/// Takes lock number `lock` of 4096, the same in every rank. It is granted in the order of asking. Give it back in the same
/// thread with `mw_shared_unlock`.
///
/// # Errors
/// `MW_ERR_RANGE`: a number beyond the last. `MW_ERR_STATE`: this thread holds it. `MW_ERR_GONE`: a rank has left or died.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_lock(shared: Option<&mw_shared_t>, lock: u32) -> mw_status_t {
    call(|| {
        let guard = required(shared, "shared")?.shared.lock(lock)?;
        // The program gives it back.
        core::mem::forget(guard);
        Ok(())
    })
}

/// Gives a lock back.
///
/// # Errors
/// `MW_ERR_RANGE`: a number beyond the last. `MW_ERR_STATE`: this thread does not hold it.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_unlock(shared: Option<&mw_shared_t>, lock: u32) -> mw_status_t {
    call(|| Ok(required(shared, "shared")?.shared.unlock(lock)?))
}

/// Gives `*value` of rank `root` to all ranks, in `*value`. One thread of each rank calls it, with the same root; other ranks'
/// `*value` need not be set before.
///
/// # Errors
/// `MW_ERR_RANGE`: no such rank. `MW_ERR_STATE`: ranks name different roots, or another thread of this rank is in a broadcast.
/// `MW_ERR_GONE`: a rank has left or died.
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
            // SAFETY: the root has set it, as it is told above; any 8 bytes are a number.
            unsafe { value.assume_init_read() }
        } else {
            0
        };
        let all = shared.broadcast(root as usize, mine)?;
        value.write(all);
        Ok(())
    })
}

/// Changes how many threads of this rank take part in barriers: 1 to 64, while none waits in one.
///
/// # Errors
/// `MW_ERR_LIMIT`: none, too many, or some wait.
#[unsafe(no_mangle)]
pub extern "C" fn mw_shared_set_threads(shared: Option<&mw_shared_t>, threads: u32) -> mw_status_t {
    call(|| Ok(required(shared, "shared")?.shared.set_threads(threads as usize)?))
}
