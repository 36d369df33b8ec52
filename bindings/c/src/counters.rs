//! Counters of nodes and of the shared memory.

use mapwire::LinkCounters;

use crate::arguments::required;
use crate::failure::call;
use crate::growing::{self, Growing};
use crate::node::mw_node_t;
use crate::shared::mw_shared_t;
use crate::status::mw_status_t;

/// Counters of a node's NIC and its translation since it joined.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct mw_node_counters_t {
    /// `sizeof(mw_node_counters_t)`; set it before the call.
    pub size: usize,
    /// Commands carried out (sends and fetches on the ring path).
    pub commands: u64,
    /// Commands refused.
    pub failed_commands: u64,
    /// Packets given to the transport.
    pub packets_sent: u64,
    /// Their payload bytes.
    pub bytes_sent: u64,
    /// Packets accepted.
    pub packets_received: u64,
    /// Their payload bytes.
    pub bytes_received: u64,
    /// Packets rejected: a wrong key, a range outside the export, no right.
    pub packets_rejected: u64,
    /// Notifications raised.
    pub notifications: u64,
    /// Fetches completed for this process.
    pub fetches: u64,
    /// Fetches served for others.
    pub fetches_served: u64,
    /// Pages that the NIC translated.
    pub lookups: u64,
    /// Pages of transfers that were not pinned.
    pub check_misses: u64,
    /// Lookups that the NIC's cache could not serve.
    pub nic_misses: u64,
    /// Pages pinned.
    pub pins: u64,
    /// Pages unpinned.
    pub unpins: u64,
    /// Pages pinned now.
    pub pinned_pages: u64,
    /// Sends of this process that the exporter refused after they had left, as far as this process knows: they had returned `MW_OK`, or
    /// failed midway. `mw_import_flush` reports those of one import.
    pub refused_stores: u64,
    /// Packets sent to ranks of other hosts for the first time.
    pub link_packets_sent: u64,
    /// Packets sent to them again.
    pub link_packets_resent: u64,
    /// Timeouts: nothing came back from them in time.
    pub link_timeouts: u64,
    /// Smoothed round-trip time to the slowest of them, in nanoseconds; 0 before the first measurement.
    pub link_rtt_ns: u64,
    /// Datagrams that were rejected before any other effect.
    pub datagrams_rejected: u64,
}

// SAFETY: `repr(C)`, words only, so without padding; the size comes first; numbers.
unsafe impl Growing for mw_node_counters_t {
    const NAME: &'static str = "mw_node_counters_t";
    const FIRST: usize = 17 * 8;
}

/// Counters of a rank's shared memory since it was opened.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct mw_shared_counters_t {
    /// `sizeof(mw_shared_counters_t)`; set it before the call.
    pub size: usize,
    /// Read faults that needed other ranks.
    pub read_faults: u64,
    /// Write faults that needed other ranks.
    pub write_faults: u64,
    /// Faults on memory that was already accessible when they were served.
    pub spurious_faults: u64,
    /// Rights to write obtained without data, because this rank had a valid copy.
    pub upgrades: u64,
    /// Copies that this rank dropped so that another could write.
    pub invalidations: u64,
    /// Rights to write that this rank reduced so that another could read.
    pub downgrades: u64,
    /// Requests delayed so that a thread could use what it had just been granted.
    pub held_back: u64,
    /// Messages to other ranks.
    pub messages_sent: u64,
    /// Messages from other ranks.
    pub messages_received: u64,
    /// Allocations stored as wholes into other ranks.
    pub minipages_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Locks taken without a message.
    pub lock_acquires_local: u64,
    /// Locks taken from another rank.
    pub lock_acquires_remote: u64,
    /// Barriers passed, once a rank.
    pub barriers: u64,
    /// Allocations made here.
    pub allocations: u64,
    /// Their bytes, as requested.
    pub allocated_bytes: u64,
    /// Allocations requested before any access.
    pub prefetches: u64,
}

// SAFETY: `repr(C)`, words only, so without padding; the size comes first; numbers.
unsafe impl Growing for mw_shared_counters_t {
    const NAME: &'static str = "mw_shared_counters_t";
    const FIRST: usize = 17 * 8;
}

/// Counters of C, most of which have the names that they have where they are counted.
macro_rules! counters {
    ($type:ident { $($from:ident: $($name:ident),*;)* } { $($other:ident: $value:expr,)* }) => {
        $type { size: 0, $($($name: $from.$name,)*)* $($other: $value,)* }
    };
}

/// Returns the node's counters so far in `*counters`, whose `size` must be set.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: the size is not valid.
///
/// # Safety
/// `counters` is as large as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_node_counters(node: Option<&mw_node_t>, counters: *mut mw_node_counters_t) -> mw_status_t {
    call(|| {
        let node = &required(node, "node")?.node;
        node.check_process()?;
        let (nic, translation) = (node.nic_counters(), node.translation_counters());
        let mut links = node.links();
        // A rank's link to itself stays on its host.
        links.retain(|(rank, _)| *rank != node.rank());
        let sum = |part: fn(&LinkCounters) -> u64| links.iter().map(|(_, link)| part(&link.counters)).sum();
        let value = counters!(mw_node_counters_t {
            nic: commands, failed_commands, packets_sent, bytes_sent, packets_received, bytes_received, notifications, fetches,
                fetches_served;
            translation: lookups, check_misses, nic_misses, pins, unpins, pinned_pages;
        } {
            packets_rejected: nic.rejected.total(),
            refused_stores: node.refused_stores(),
            link_packets_sent: sum(|link| link.sent),
            link_packets_resent: sum(|link| link.resent),
            link_timeouts: sum(|link| link.timeouts),
            link_rtt_ns: links.iter().filter_map(|(_, link)| link.rtt_ns).max().unwrap_or(0),
            datagrams_rejected: node.rejections().map_or(0, |counted| counted.rejections()),
        });
        // SAFETY: the caller's promise.
        unsafe { growing::write(counters, &value) }
    })
}

/// Returns the shared memory's counters so far in `*counters`, whose `size` must be set.
///
/// # Errors
/// `MW_ERR_ARGUMENT`: the size is not valid.
///
/// # Safety
/// `counters` is as large as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mw_shared_counters(
    shared: Option<&mw_shared_t>,
    counters: *mut mw_shared_counters_t,
) -> mw_status_t {
    call(|| {
        let shared = &required(shared, "shared")?.shared;
        shared.node().check_process()?;
        let done = shared.counters();
        let value = counters!(mw_shared_counters_t {
            done: read_faults, write_faults, spurious_faults, upgrades, invalidations, downgrades, held_back, messages_sent,
                messages_received, minipages_sent, bytes_sent, lock_acquires_local, lock_acquires_remote, barriers, allocations,
                allocated_bytes, prefetches;
        } {});
        // SAFETY: the caller's promise.
        unsafe { growing::write(counters, &value) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_has_the_size_that_it_had() {
        // When a field is added, `FIRST` stays, and these become `>`.
        assert_eq!(<mw_node_counters_t as Growing>::FIRST, 17 * 8);
        assert!(size_of::<mw_node_counters_t>() > <mw_node_counters_t as Growing>::FIRST);
        assert_eq!(<mw_shared_counters_t as Growing>::FIRST, 17 * 8);
        assert!(size_of::<mw_shared_counters_t>() > <mw_shared_counters_t as Growing>::FIRST);
        assert_eq!(
            size_of::<crate::export::mw_export_options_t>(),
            <crate::export::mw_export_options_t as Growing>::FIRST
        );
        assert_eq!(
            size_of::<crate::import::mw_import_options_t>(),
            <crate::import::mw_import_options_t as Growing>::FIRST
        );
        assert_eq!(
            size_of::<crate::allocation::mw_alloc_options_t>(),
            <crate::allocation::mw_alloc_options_t as Growing>::FIRST
        );
    }
}
