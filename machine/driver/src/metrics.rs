//! What a rank counts, as one row of named figures for whoever looks: `mapwire top`, a summary, a collector of metrics.

use mapwire_nic::link::LinkStats;
use mapwire_seal::Cause;
use mapwire_translation::TranslationDesign;
use mapwire_transport::board::{FIGURES, Figures};
use mapwire_transport::fabric::Fabric;
use mapwire_wire::NodeId;

use crate::driver::Driver;
use crate::rma::Moved;

/// A figure's name and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name: words of small letters with `_` between them, the unit at the end.
    pub name: &'static str,
    /// Of the figures of one name, which one: the label's name and value.
    pub label: Option<(&'static str, &'static str)>,
    /// What it is, in one sentence without a stop.
    pub help: &'static str,
    /// Whether it falls too; else it only grows while the rank lives.
    pub is_gauge: bool,
}

/// What was counted, or is so now, in the parts of a rank.
#[derive(Debug, Default)]
struct Sources {
    nic: mapwire_nic::Counters,
    refused_stores: u64,
    dropped_notices: u64,
    moved: Moved,
    stored_in_place: u64,
    pages: mapwire_translation::Counters,
    shared: mapwire_vmmc::service::Figures,
    links: Links,
    seal: mapwire_seal::Counters,
}

/// All links of a rank.
#[derive(Debug, Default)]
struct Links {
    sent: u64,
    resent: u64,
    repeated: u64,
    losses: u64,
    timeouts: u64,
    longest_rtt_ns: u64,
    window_bytes: u64,
    in_flight_bytes: u64,
}

impl Links {
    fn add(&mut self, link: &LinkStats) {
        self.sent += link.counters.sent;
        self.resent += link.counters.resent;
        self.repeated += link.counters.repeated;
        self.losses += link.counters.losses;
        self.timeouts += link.counters.timeouts;
        self.longest_rtt_ns = self.longest_rtt_ns.max(link.rtt_ns.unwrap_or(0));
        self.window_bytes += link.window_bytes;
        self.in_flight_bytes += link.in_flight_bytes;
    }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, label: None, help, is_gauge: false }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { is_gauge: true, ..counter(name, help) }
}

/// The label of a cause: a word that programs can match.
const fn label(cause: Cause) -> &'static str {
    match cause {
        Cause::Malformed => "malformed",
        Cause::Mode => "mode",
        Cause::Code => "code",
        Cause::Misdirected => "misdirected",
        Cause::NoCookie => "no_cookie",
        Cause::UnknownPeer => "unknown_peer",
        Cause::Handshake => "handshake",
        Cause::Unasked => "unasked",
        Cause::Crossed => "crossed",
        Cause::Repeated => "repeated",
        Cause::Limited => "limited",
        Cause::UnknownSession => "unknown_session",
        Cause::Tag => "tag",
        Cause::Replay => "replay",
    }
}

/// Names and figures, in the order in which they are published.
fn row(from: &Sources) -> impl Iterator<Item = (Metric, u64)> {
    let Sources { nic, refused_stores, dropped_notices, moved, stored_in_place, pages, shared, links, seal } = from;
    let fixed = [
        (counter("commands", "Commands carried out by the NIC"), nic.commands),
        (counter("commands_refused", "Commands refused"), nic.failed_commands),
        (counter("packets_sent", "Packets given to the transport"), nic.packets_sent),
        (counter("bytes_sent", "Payload bytes of packets sent"), nic.bytes_sent),
        (counter("packets_received", "Packets that came in order and well formed"), nic.packets_received),
        (counter("bytes_received", "Payload bytes of packets received"), nic.bytes_received),
        (counter("packets_rejected", "Packets dropped for good"), nic.rejected.total()),
        (counter("stores_refused", "Stores that exporters have refused"), *refused_stores),
        (counter("notifications", "Notifications raised"), nic.notifications),
        (
            counter("notifications_dropped", "Notifications dropped, since too many of their sender waited"),
            *dropped_notices,
        ),
        (counter("moves", "Stores and fetches of memory by libfabric, past the NIC"), moved.transfers),
        (counter("moved_bytes", "Bytes of those"), moved.bytes),
        (
            counter(
                "bytes_stored_in_place",
                "Bytes that calls stored straight into mapped memory of ranks of the same host",
            ),
            *stored_in_place,
        ),
        (counter("fetches", "Fetches completed"), nic.fetches),
        (counter("fetches_served", "Fetches served for other ranks"), nic.fetches_served),
        (counter("atomics_served", "Atomic operations carried out for other ranks"), nic.atomics_served),
        (counter("translation_lookups", "Pages that the NIC translated"), pages.lookups),
        (
            counter("translation_misses", "Lookups for which the NIC cache did not have the translation"),
            pages.nic_misses,
        ),
        (counter("pins", "Pages pinned"), pages.pins),
        (counter("unpins", "Pages unpinned"), pages.unpins),
        (gauge("pinned_pages", "Pages pinned now"), pages.pinned_pages),
        (counter("read_faults", "Read faults of the shared memory that needed the protocol"), shared.read_faults),
        (counter("write_faults", "Write faults of the shared memory that needed the protocol"), shared.write_faults),
        (counter("invalidations", "Copies given up so that another rank could write"), shared.invalidations),
        (counter("minipages_sent", "Minipages stored into other ranks"), shared.regions_sent),
        (counter("minipage_bytes_sent", "Bytes of those minipages"), shared.bytes_sent),
        (
            counter("lock_acquires_remote", "Locks obtained by waiting for the token of another rank"),
            shared.remote_locks,
        ),
        (counter("barriers", "Barriers of the shared memory passed"), shared.barriers),
        (counter("link_packets_sent", "Packets sent for the first time by links between hosts"), links.sent),
        (counter("link_packets_resent", "Packets that links sent again"), links.resent),
        (counter("link_packets_repeated", "Packets that came to links once more"), links.repeated),
        (counter("link_losses", "Times that losses were found by later acks"), links.losses),
        (counter("link_timeouts", "Times that nothing came back in time"), links.timeouts),
        (gauge("link_rtt_ns", "Smoothed round-trip time of the slowest link, in nanoseconds"), links.longest_rtt_ns),
        (gauge("link_window_bytes", "Bytes that may be under way, of all links"), links.window_bytes),
        (gauge("link_in_flight_bytes", "Bytes that are under way, of all links"), links.in_flight_bytes),
        (counter("early_dropped", "Packets dropped before their turn for want of room"), nic.early_dropped),
        (counter("datagrams_ignored", "Genuine datagrams that had no effect"), nic.datagrams_ignored),
        (counter("handshakes", "Handshakes after which a session became current"), seal.handshakes()),
    ];
    let of_causes = |are_usual: bool, metric: Metric| {
        let causes = Cause::ALL.into_iter();
        causes.filter(move |cause| cause.is_usual() == are_usual).map(move |cause| {
            let label = Some(("cause", label(cause)));
            (Metric { label, ..metric }, seal.rejected(cause))
        })
    };
    let usual = counter(
        "handshakes_put_off",
        "Datagrams of handshakes that were dropped as happens when honest ranks meet too",
    );
    let others = counter("datagrams_rejected", "Datagrams that were rejected before any other effect");
    (fixed.into_iter()).chain(of_causes(true, usual)).chain(of_causes(false, others))
}

/// The figures that ranks publish, in their order.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    row(&Sources::default()).map(|(metric, _)| metric).collect()
}

impl<F: Fabric> Driver<F> {
    pub(crate) fn figures(&mut self, now_ns: u64, size: u32) -> Figures {
        let mut links = Links::default();
        for peer in 0..size {
            if let Some(link) = self.nic().link_stats(NodeId(peer as u16)) {
                links.add(&link);
            }
        }
        let sources = Sources {
            nic: *self.nic().counters(),
            refused_stores: self.refused_stores(),
            dropped_notices: self.dropped_notices(),
            moved: self.moved(),
            stored_in_place: self.stored_in_place(),
            pages: TranslationDesign::counters(self.nic().translation()) + self.page_counters(),
            shared: self.service_figures(),
            links,
            seal: self.rejections().unwrap_or_default(),
        };
        let mut words = [0; FIGURES];
        for (word, (_, figure)) in words.iter_mut().zip(row(&sources)) {
            *word = figure;
        }
        Figures { at_ns: now_ns.max(1), words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_figure_has_a_word_and_a_name_of_its_own() {
        let metrics = metrics();
        assert!(metrics.len() <= FIGURES);
        let names: HashSet<_> = metrics.iter().map(|it| (it.name, it.label)).collect();
        assert_eq!(names.len(), metrics.len());
        let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(metrics.iter().all(|it| is_plain(it.name)));
    }
}
