//! Records of any bytes: each is refused, or taken as a call whose every part lies in the record, and the node goes on serving another.

#[path = "network/mod.rs"]
mod network;

use mapwire_rpc::{Config, ENVELOPE_BYTES};
use mapwire_vmmc::service::Service;
use mapwire_wire::{Endpoint, NodeId};
use network::Network;
#[cfg(test)]
use proptest::prelude::*;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Broken,
    /// It was a call that somebody took.
    Taken,
    /// It was a call that the node has answered by itself, or a reply.
    Dropped,
}

/// Sends node 0 a record of these bytes, from node 2.
fn send(bytes: &[u8]) -> Fate {
    let mut network = Network::new(3, Config::default());
    network.connect(1, 0);
    network.connect(2, 0);
    // A call that waits, so that a reply may have one to go to.
    let xid = network.begin(0, 2, b"ask", false).expect("a connection");
    // A message as node 2 would send it, with these bytes for its record.
    let mut draft = Some(network.draft(2, 1));
    let begun = network.node(2).begin(NodeId(0), &mut draft, None, None);
    begun.expect("a connection");
    network.gather();
    let sent = network.under_way.entry((2, 0)).or_default();
    let mut message = sent.pop_back().expect("a call");
    message.truncate(ENVELOPE_BYTES);
    message.extend_from_slice(bytes);
    let from = Endpoint::first_of(NodeId(2));
    let fate = match network.node(0).handle_message(0, from, &message) {
        Err(_) => Fate::Broken,
        Ok(()) => match network.next(0) {
            Some((call, arguments)) => {
                assert!(arguments.len() <= bytes.len());
                let _ = network.reply(0, &call, &arguments, false);
                Fate::Taken
            }
            None => Fate::Dropped,
        },
    };
    let _ = network.outcome(0, 2, xid);
    let xid = network.begin(1, 0, b"still", false).expect("a connection");
    while network.deliver(1, 0) {}
    let (call, arguments) = network.next(0).expect("the call of another");
    assert_eq!(arguments, b"still");
    network.reply(0, &call, b"here", false).expect("a caller");
    while network.deliver(0, 1) {}
    assert_eq!(network.outcome(1, 0, xid), Some(Ok(b"here".to_vec())));
    fate
}

/// For a fuzzer.
#[allow(dead_code, reason = "the fuzz target calls it")]
pub(crate) fn run(bytes: &[u8]) {
    send(bytes);
}

/// A call that somebody takes, in words.
const CALL: [u32; 10] = [9000, 0, 2, network::PROGRAM, network::VERSION, 1, 0, 0, 0, 0];

fn record(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn every_field_of_a_call_that_is_wrong_is_told_or_ends_the_connection() {
    assert_eq!(send(&record(&CALL)), Fate::Taken);
    for (at, value, fate) in [
        // Neither call nor reply.
        (1, 2, Fate::Broken),
        // Version of the protocol, program, version of the program.
        (2, 3, Fate::Dropped),
        (3, 1, Fate::Dropped),
        (4, 1, Fate::Dropped),
        // The procedure is for the program to know.
        (5, u32::MAX, Fate::Taken),
        // Flavour and length of the credential, then of the verifier.
        (6, 6, Fate::Dropped),
        (6, 1, Fate::Dropped),
        (7, 401, Fate::Broken),
        (7, 400, Fate::Broken),
        (8, 1, Fate::Dropped),
        (9, u32::MAX, Fate::Broken),
    ] {
        let mut words = CALL;
        words[at] = value;
        assert_eq!(send(&record(&words)), fate, "word {at} is {value}");
    }
    for words in 0..CALL.len() {
        assert_eq!(send(&record(&CALL[..words])), Fate::Broken, "{words} words");
    }
    // A reply that nobody waits for, and malformed ones.
    assert_eq!(send(&record(&[1, 1, 0, 0, 0, 0])), Fate::Dropped);
    for words in [[1, 1, 2, 0, 0, 0], [1, 1, 0, 0, 0, 6], [1, 1, 1, 2, 0, 0], [1, 1, 1, 1, 8, 0]] {
        assert_eq!(send(&record(&words)), Fate::Broken, "{words:?}");
    }
}

#[cfg(test)]
proptest! {
    #[test]
    fn any_record_is_refused_or_taken_and_others_are_served(
        words in prop::collection::vec(0..12_u32, 0..20),
        bytes in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        send(&record(&words));
        send(&bytes);
        let mut call = record(&CALL);
        call.extend(&bytes);
        prop_assert_eq!(send(&call), Fate::Taken);
    }
}
