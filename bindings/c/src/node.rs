//! A process's place in its job.

use core::mem::MaybeUninit;

use mapwire::Node;

use crate::arguments::{flag, give, new_object, required};
use crate::failure::call;
use crate::log;
use crate::status::mw_status_t;

/// A process's place in a job: its rank, and the way to the others. Any number of threads may use it at once.
#[derive(Debug)]
pub struct mw_node_t {
    pub(crate) node: Node,
}

/// Joins the job that `mapwire run` started this process in, or `mpirun`, `srun` or `mpiexec` (by PMIx, PMI-2 or PMI-1); without a
/// launcher, a job of this process alone, of rank 0. The
/// `MAPWIRE_*` variables are read here: how threads wait (`MAPWIRE_WAIT`: poll, event or adaptive), how long joining and
/// importing may take (`MAPWIRE_TIMEOUT`, in seconds), and the others of mapwire(1). A process joins once.
///
/// Give `*node` back with `mw_node_free`.
///
/// # Errors
/// `MW_ERR_CONFIG`: a variable that is not valid. `MW_ERR_GONE`: the launcher has ended. `MW_ERR_EXISTS`: this process has
/// joined before. `MW_ERR_VERSION`: the launcher is of another release. `MW_ERR_LIMIT`, `MW_ERR_SYSTEM`: the operating system
/// refuses memory, pinned pages or a thread.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_join(node: Option<&mut MaybeUninit<*mut mw_node_t>>) -> mw_status_t {
    call(|| {
        let place = new_object(node, "node")?;
        log::start();
        let node = Node::join()?;
        *place = Box::into_raw(Box::new(mw_node_t { node }));
        Ok(())
    })
}

/// Gives the node back. The process leaves the job when everything made from the node has been given back too (exports,
/// imports, requests, shared memory; not buffers), and what was sent has arrived, or is in memory of a rank of the same host: it waits
/// for that for as long as `MAPWIRE_TIMEOUT` says. Until then they can be used. `NULL` is no error.
///
/// A process that returns from `main` or calls `exit` leaves likewise, before its functions of `atexit` run that it registered before
/// it joined. What did not arrive, without an error of a call having told of it, is named on standard error, and the exit code is 70 if
/// it would have been 0. With another code it delivers what it sent, and then counts as a rank that failed. `_exit`, `quick_exit`, `abort` and signals end a process without that.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_free(node: Option<Box<mw_node_t>>) -> mw_status_t {
    call(|| {
        drop(node);
        Ok(())
    })
}

/// This process's number in the job, from 0, in `*rank`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_rank(node: Option<&mw_node_t>, rank: Option<&mut MaybeUninit<u32>>) -> mw_status_t {
    call(|| {
        let number = required(node, "node")?.node.rank();
        // A job has fewer than 2^16 ranks.
        give(rank, "rank", number as u32)
    })
}

/// How many processes the job has, in `*size`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_node_size(node: Option<&mw_node_t>, size: Option<&mut MaybeUninit<u32>>) -> mw_status_t {
    call(|| {
        let number = required(node, "node")?.node.size();
        // As in `mw_node_rank`.
        give(size, "size", number as u32)
    })
}

/// Serves what has come: one turn of the driver in the calling thread, and the handlers of notifications. `*worked` tells
/// whether there was anything (1 or 0); it may be `NULL`. Never waits.
///
/// Needed only by programs that look at memory themselves in a loop: calls that wait do it, and a thread of the library does
/// while no thread waits.
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
