//! A record of a remote procedure call that is any bytes: it is refused, or taken as a call whose every part lies in the record, and the node goes
//! on serving another.
#![no_main]

#[path = "../../services/rpc/tests/network/mod.rs"]
mod network;

use libfuzzer_sys::fuzz_target;
use mapwire_rpc::{Config, ENVELOPE_BYTES};
use mapwire_service::Service;
use mapwire_wire::{Endpoint, NodeId};
use network::Network;

fuzz_target!(|bytes: &[u8]| {
    let mut network = Network::new(3, Config::default());
    network.connect(1, 0);
    network.connect(2, 0);
    // A call that waits, so that replies have one to go to.
    let xid = network.begin(0, 2, b"ask", false).expect("a connection");
    // A message of node 2 as it would send it, with these bytes for its record.
    let draft = network.draft(2, 1);
    let mut draft = Some(draft);
    let begun = network.node(2).begin(NodeId(0), &mut draft, None, None);
    begun.expect("a connection");
    network.gather();
    let sent = network.under_way.entry((2, 0)).or_default();
    let mut message = sent.pop_back().expect("a call");
    message.truncate(ENVELOPE_BYTES);
    message.extend_from_slice(bytes);
    let from = Endpoint::first_of(NodeId(2));
    if network.node(0).handle_message(0, from, &message).is_ok() {
        if let Some((call, arguments)) = network.next(0) {
            assert!(arguments.len() <= bytes.len());
            let _ = network.reply(0, &call, &arguments, false);
        }
        let _ = network.outcome(0, 2, xid);
    }
    let xid = network.begin(1, 0, b"still", false).expect("a connection");
    while network.deliver(1, 0) {}
    let (call, arguments) = network.next(0).expect("the call of another");
    assert_eq!(arguments, b"still");
    network.reply(0, &call, b"here", false).expect("a caller");
    while network.deliver(0, 1) {}
    assert_eq!(network.outcome(1, 0, xid), Some(Ok(b"here".to_vec())));
});
