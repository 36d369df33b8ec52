//! A process's membership in its job.

use core::mem::MaybeUninit;

use mapwire::Node;

use crate::arguments::{flag, free, get, make, required};
use crate::failure::call;
use crate::log;
use crate::status::mw_status_t;

/// A process's membership in a job: its rank, and its connections to the others. Any number of threads may use it at once.
#[derive(Debug)]
pub struct mw_node_t {
    pub(crate) node: Node,
}

/// Joins the job in which `mapwire run`, `mpirun`, `srun` or `mpiexec` (by PMIx, PMI-2 or PMI-1) started this process; without a launcher,
/// a job of this process alone, as rank 0. Reads the `MAPWIRE_*` variables: how threads wait (`MAPWIRE_WAIT`: poll, event or adaptive),
/// how long joining and importing may take (`MAPWIRE_TIMEOUT`, in seconds), and the others of mapwire(1). A process joins once.
///
/// Free `*node` with `mw_node_free`.
///
/// # Errors
/// `MW_ERR_CONFIG`: an invalid variable. `MW_ERR_GONE`: the launcher has ended. `MW_ERR_EXISTS`: this process has joined before.
/// `MW_ERR_VERSION`: the launcher is of another release. `MW_ERR_LIMIT`, `MW_ERR_SYSTEM`: the operating system refuses memory, pinned
/// pages or a thread.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_join(node: Option<&mut MaybeUninit<*mut mw_node_t>>) -> mw_status_t {
    make(node, "node", || {
        log::start();
        Ok(mw_node_t { node: Node::join()? })
    })
}

/// Frees the node. The process leaves the job once everything made from the node has been freed too (exports, imports, requests, shared
/// memory; not buffers), and what was sent has arrived, or is in memory of a rank of the same host: it waits for that for up to
/// `MAPWIRE_TIMEOUT`. Until then they can be used. `NULL` is no error.
///
/// A process that returns from `main` or calls `exit` leaves likewise, before the `atexit` functions run that it registered before it
/// joined. Sends that did not arrive, and that no call reported, are named on standard error, and the exit code is 70 if it would have
/// been 0. A process with another exit code delivers what it sent, and then counts as a rank that failed. `_exit`, `quick_exit`, `abort`
/// and signals end a process without that.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_free(node: Option<Box<mw_node_t>>) -> mw_status_t {
    free(node)
}

/// Returns this process's number in the job, from 0, in `*rank`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_rank(node: Option<&mw_node_t>, rank: Option<&mut MaybeUninit<u32>>) -> mw_status_t {
    // A job has fewer than 2^16 ranks.
    get(rank, "rank", || Ok(required(node, "node")?.node.rank() as u32))
}

/// Returns the number of processes in the job in `*size`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_size(node: Option<&mw_node_t>, size: Option<&mut MaybeUninit<u32>>) -> mw_status_t {
    // As in `mw_node_rank`.
    get(size, "size", || Ok(required(node, "node")?.node.size() as u32))
}

/// Serves what has arrived: one turn of the driver in the calling thread, and the notification handlers. `*worked` says whether there was
/// anything (1 or 0); it may be `NULL`. Never waits.
///
/// Needed only by programs that check memory themselves in a loop: calls that wait do it, and a thread of the library does while no thread
/// waits.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_poll(node: Option<&mw_node_t>, worked: Option<&mut MaybeUninit<i32>>) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        node.check_process()?;
        let did = node.poll();
        if let Some(worked) = worked {
            worked.write(flag(did));
        }
        Ok(())
    })
}
