//! Where pages lie that were put, and that as many copies stay as were asked for.

use std::collections::{BTreeMap, VecDeque};

use mapwire_gms::{Config, Gms, NodeSet, Outcome, PageName, Place, PutPage, SpaceId};
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

const NODES: u16 = 4;
const POOL: u32 = 64;

/// Nodes of which all but node 0 serve so many frames.
fn nodes(serving: u32) -> Vec<Gms> {
    let members: NodeSet = (0..NODES).map(NodeId).collect();
    let node = |node| {
        let config = Config::new(NodeId(node), members, 2 * POOL, POOL);
        let mut gms = Gms::new(config).unwrap();
        if node > 0 {
            gms.donate(0, serving).unwrap();
        }
        gms
    };
    (0..NODES).map(node).collect()
}

fn name(page: u64) -> PageName {
    let space = SpaceId::Anonymous { node: 0, incarnation: 1, region: 0 };
    PageName::new(&space, page)
}

/// Node 0 puts a page that is nowhere else.
fn put(nodes: &mut [Gms], now_ns: u64, page: u64, version: u32, copies: u8) {
    let put = PutPage {
        name: name(page),
        version,
        frame: page as u32,
        tag: page,
        checksum: 0,
        age_ms: 0,
        on_disk: false,
        copies,
        to: None,
    };
    nodes[0].put(now_ns, put).unwrap();
}

/// Delivers all that is sent.
fn deliver(nodes: &mut [Gms], now_ns: u64) {
    let mut packets = VecDeque::new();
    loop {
        for (node, gms) in (0..).map(NodeId).zip(&mut *nodes) {
            while let Some(action) = gms.poll_action() {
                let (Action::Send { to, message } | Action::Store { to, message, .. }) = action else {
                    panic!("{action:?}");
                };
                packets.push_back((node, to.node, message.to_vec()));
            }
        }
        let Some((from, to, message)) = packets.pop_front() else {
            return;
        };
        let from = Endpoint::first_of(from);
        let taken = nodes[usize::from(to.0)].handle_message(now_ns, from, &message);
        assert_eq!(taken, Ok(()));
    }
}

#[test]
fn whoever_puts_a_page_is_told_of_a_frame_that_holds_it() {
    let mut nodes = nodes(POOL);
    deliver(&mut nodes, 0);
    for (version, copies) in [(1, 1), (2, 2), (3, 2), (4, 1)] {
        for page in 0..20 {
            put(&mut nodes, 0, page, version, copies);
        }
        deliver(&mut nodes, 0);
        for _ in 0..20 {
            let outcome = nodes[0].poll_outcome();
            let Some(Outcome::Stored { tag, copies: stored, place: Place { node, frame } }) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(stored, copies);
            let mut pages = nodes[usize::from(node.0)].pages();
            assert!(
                pages.any(|held| held == (name(tag), version, frame)),
                "version {version} of page {tag} is not in frame {frame} of {node}"
            );
        }
    }
}

/// Nodes that store a version of a page.
fn holders(nodes: &[Gms], page: u64, version: u32) -> usize {
    let holds = |gms: &&Gms| {
        let mut pages = gms.pages();
        pages.any(|(held, its_version, _)| (held, its_version) == (name(page), version))
    };
    nodes.iter().filter(holds).count()
}

#[test]
fn two_copies_of_a_page_stay_two_where_frames_run_short_and_where_a_node_serves_fewer() {
    let mut nodes = nodes(12);
    deliver(&mut nodes, 0);
    let mut stored = BTreeMap::new();
    let mut refused = 0;
    let mut check = |nodes: &mut [Gms], stored: &mut BTreeMap<u64, u32>, version| {
        while let Some(outcome) = nodes[0].poll_outcome() {
            match outcome {
                Outcome::Stored { tag, copies: 2, .. } => {
                    stored.insert(tag, version);
                }
                Outcome::Stored { tag, .. } | Outcome::Refused { tag, .. } => {
                    // Whoever put it has another place for it.
                    stored.remove(&tag);
                    refused += 1;
                }
                _ => {}
            }
        }
        for (&page, &version) in &*stored {
            let count = holders(nodes, page, version);
            assert!(count >= 2, "{count} nodes hold version {version} of page {page}");
        }
        refused
    };
    let second = 1_000_000_000;
    let mut now_ns = 0;
    for version in 1..=4 {
        for page in 0..40 {
            now_ns += second;
            stored.remove(&page);
            put(&mut nodes, now_ns, page, version, 2);
            deliver(&mut nodes, now_ns);
            check(&mut nodes, &mut stored, version);
        }
    }
    assert!(stored.len() >= 8, "{stored:?}");
    // There is room for all that one node has at the others, as pages are discarded.
    for page in 0..24 {
        stored.remove(&page);
        nodes[0].discard(now_ns, name(page), 4).unwrap();
        deliver(&mut nodes, now_ns);
    }
    nodes[1].donate(now_ns, 0).unwrap();
    for _ in 0..40 {
        now_ns += second;
        for gms in &mut nodes {
            gms.handle_time(now_ns);
        }
        deliver(&mut nodes, now_ns);
        check(&mut nodes, &mut stored, 4);
    }
    let refused = check(&mut nodes, &mut stored, 4);
    assert!(refused > 0, "frames never ran short");
}
