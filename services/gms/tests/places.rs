//! Where pages lie that were put.

use std::collections::VecDeque;

use mapwire_gms::{Config, Gms, NodeSet, Outcome, PageName, Place, PutPage, SpaceId};
use mapwire_service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

const NODES: u16 = 4;
const POOL: u32 = 64;

fn nodes() -> Vec<Gms> {
    let members: NodeSet = (0..NODES).map(NodeId).collect();
    let node = |node| {
        let config = Config::new(NodeId(node), members, 2 * POOL, POOL);
        let mut gms = Gms::new(config).unwrap();
        gms.donate(0, POOL).unwrap();
        gms
    };
    (0..NODES).map(node).collect()
}

/// Delivers all that is sent.
fn deliver(nodes: &mut [Gms]) {
    let mut packets = VecDeque::new();
    loop {
        for (node, gms) in (0..).map(NodeId).zip(&mut *nodes) {
            while let Some(action) = gms.poll_action() {
                let (Action::Send { to, message } | Action::Store { to, message, .. }) = action
                else {
                    panic!("{action:?}");
                };
                packets.push_back((node, to.node, message.to_vec()));
            }
        }
        let Some((from, to, message)) = packets.pop_front() else {
            return;
        };
        let from = Endpoint::first_of(from);
        let taken = nodes[usize::from(to.0)].handle_message(0, from, &message);
        assert_eq!(taken, Ok(()));
    }
}

#[test]
fn whoever_puts_a_page_is_told_of_a_frame_that_holds_it() {
    let mut nodes = nodes();
    deliver(&mut nodes);
    while nodes[0].poll_outcome().is_some() {}
    let space = SpaceId::Anonymous {
        node: 0,
        incarnation: 1,
        region: 0,
    };
    let name = |page| PageName::new(&space, page);
    for (version, copies) in [(1, 1), (2, 2), (3, 2), (4, 1)] {
        for page in 0..20 {
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
            nodes[0].put(0, put).unwrap();
        }
        deliver(&mut nodes);
        for _ in 0..20 {
            let outcome = nodes[0].poll_outcome();
            let Some(Outcome::Stored {
                tag,
                copies: stored,
                place: Place { node, frame },
            }) = outcome
            else {
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
