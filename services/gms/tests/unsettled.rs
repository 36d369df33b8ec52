//! What a directory node answers while not all members have reported by its map.

use mapwire_gms::{Config, Gms, Listing, Message, NodeSet, PageName};
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

/// Messages that a node sends, by receiver.
fn sent(gms: &mut Gms) -> Vec<(NodeId, Message)> {
    let mut sent = Vec::new();
    while let Some(Action::Send { to, message }) = gms.poll_action() {
        sent.push((to.node, Message::parse(message).unwrap()));
    }
    sent
}

fn hear(gms: &mut Gms, from: u16, message: &Message) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let from = Endpoint::first_of(NodeId(from));
    gms.handle_message(0, from, &bytes).unwrap();
}

/// Node 2 reports a page that has moved there from node 1.
fn report_moved(gms: &mut Gms, name: PageName) -> Option<Listing> {
    let insert =
        Message::Insert { frame: 9, stamp: 1, version: 1, moved_from: Some(NodeId(1)), hash: name.hash(), name };
    hear(gms, 2, &insert);
    sent(gms).into_iter().find_map(|(to, message)| match message {
        Message::Listed { listing, .. } if to == NodeId(2) => Some(listing),
        _ => None,
    })
}

#[test]
fn a_page_moves_only_once_all_have_reported_since_word_that_it_is_discarded_may_be_under_way() {
    let members: NodeSet = (0..4).map(NodeId).collect();
    let mut gms = Gms::new(Config::new(NodeId(0), members, 16, 8)).unwrap();
    gms.handle_peer_gone(0, NodeId(3));
    let messages = sent(&mut gms);
    let map = messages.iter().find_map(|(_, message)| match *message {
        Message::Map { version, .. } => Some((*message, version)),
        _ => None,
    });
    let (map, version) = map.unwrap();
    let mut names = (0..).map(|page| PageName { space: 1, page });
    let is_mine = |name: &PageName| gms.map().directory_node(name.hash()) == Some(NodeId(0));
    let name = names.find(is_mine).unwrap();
    hear(&mut gms, 1, &map);
    hear(&mut gms, 2, &map);
    let insert = Message::Insert { frame: 9, stamp: 1, version: 1, moved_from: None, hash: name.hash(), name };
    hear(&mut gms, 1, &insert);
    assert!(!gms.is_settled());
    assert_eq!(report_moved(&mut gms, name), Some(Listing::Older));
    for from in [1, 2] {
        hear(&mut gms, from, &Message::Reported { version, free: 0 });
    }
    assert!(gms.is_settled());
    assert_eq!(report_moved(&mut gms, name), Some(Listing::Listed));
}
