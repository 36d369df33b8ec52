//! Runs of services, as they are shown: a shared memory, global memory, remote procedure calls.

use mapwire_sim::Outcome;
use mapwire_sim::global::{self, GlobalScenario};
use mapwire_sim::rpc::{RpcScenario, RpcSeen};
use mapwire_sim::shared::lazy::{LazyScenario, LazySeen};
use mapwire_sim::shared::{self, SharedScenario};
use serde_json::{Value, json};

use super::run::Shown;

impl Shown for SharedScenario {
    fn more(&self) -> Value {
        let shape = self.shape;
        json!({
            "processes": shape.processes,
            "threads": shape.threads,
            "litmus": self.litmus,
            "allocations": shape.allocations,
            "locks": shape.locks,
            "barriers": shape.phases,
            "steps": shape.steps,
            "hold_ns": shape.hold_ns,
        })
    }

    fn went(&self, outcome: &Outcome<Vec<shared::Seen>>) -> Value {
        json!({ "litmus_tests": outcome.seen.len() })
    }

    fn tell(&self, outcome: &Outcome<Vec<shared::Seen>>) -> String {
        let tests = if self.litmus { format!("{} litmus tests, ", outcome.seen.len()) } else { String::new() };
        format!("{tests}{} packets", outcome.packets)
    }
}

impl Shown for LazyScenario {
    fn more(&self) -> Value {
        let shape = self.shape;
        json!({
            "processes": shape.processes,
            "threads": shape.threads,
            "stores_by_nic": self.stores_by_nic,
            "twins": shape.twins,
            "notices": shape.notices,
            "home_moves_after": shape.home_moves_after,
            "finds_races": shape.finds_races,
        })
    }

    fn went(&self, outcome: &Outcome<LazySeen>) -> Value {
        let LazySeen { counters, loads, races, rounds } = outcome.seen;
        json!({
            "litmus_tests": rounds,
            "loads": loads,
            "twins_made": counters.twins,
            "diffs": counters.diffs,
            "pages_fetched": counters.pages_fetched,
            "home_moves": counters.home_moves,
            "races": races,
        })
    }

    fn tell(&self, outcome: &Outcome<LazySeen>) -> String {
        let LazySeen { counters, loads, rounds, .. } = outcome.seen;
        format!(
            "{rounds} litmus tests, {loads} loads, {} diffs, {} pages fetched, {} homes moved, {} packets",
            counters.diffs, counters.pages_fetched, counters.home_moves, outcome.packets
        )
    }
}

impl Shown for GlobalScenario {
    fn more(&self) -> Value {
        let shape = self.shape;
        json!({
            "members": shape.members,
            "max_payload_bytes": self.drawn.cluster.max_payload_bytes,
            "stores_by_nic": self.stores_by_nic,
            "pool_frames": shape.pool_frames,
            "pages": shape.pages,
            "shared_pages": shape.shared_pages,
            "requests": shape.requests,
            "directory_bytes": shape.directory_bytes,
            "on_disk_percent": shape.on_disk_percent,
            "moves_percent": shape.moves_percent,
            "epoch_ms": shape.epoch_ms,
            "calls": self.calls,
        })
    }

    fn went(&self, outcome: &Outcome<global::Seen>) -> Value {
        let global::Seen { pages, here, absent, stored, refused, joined, left, crashed, .. } = outcome.seen;
        json!({
            "events": outcome.events,
            "fetched": pages + here,
            "absent": absent,
            "stored": stored,
            "refused": refused,
            "joined": joined,
            "left": left,
            "crashed": crashed,
        })
    }

    fn tell(&self, outcome: &Outcome<global::Seen>) -> String {
        let global::Seen { pages, here, absent, stored, refused, joined, left, crashed, .. } = outcome.seen;
        let (packets, fetched) = (outcome.packets, pages + here);
        format!(
            "{fetched} pages fetched, {absent} absent, {stored} stored, {refused} refused\n\
             {joined} nodes joined, {left} left, {crashed} died; {packets} packets"
        )
    }
}

impl Shown for RpcScenario {
    fn more(&self) -> Value {
        let config = self.config;
        json!({
            "max_payload_bytes": self.drawn.cluster.max_payload_bytes,
            "window": config.window,
            "max_in_progress": config.max_in_progress,
            "one_way_percent": self.one_way_percent,
            "close_percent": self.close_percent,
            "timeout_ns": self.timeout_ns,
            "calls": self.calls,
        })
    }

    fn went(&self, outcome: &Outcome<RpcSeen>) -> Value {
        let events = [("events", outcome.events)];
        events.into_iter().chain(outcome.seen.counts()).collect()
    }

    fn tell(&self, outcome: &Outcome<RpcSeen>) -> String {
        let RpcSeen { answered, timed_out, late, ended, one_way, crashed, .. } = outcome.seen;
        let packets = outcome.packets;
        format!(
            "{answered} calls answered, {timed_out} timed out, {ended} ended with their connection, {one_way} without an answer\n\
             {late} late replies; {crashed} nodes died or began anew; {packets} packets"
        )
    }
}
