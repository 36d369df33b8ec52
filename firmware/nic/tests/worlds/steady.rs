//! A steady exchange allocates nothing.

use crate::world::forgetful::Forgetful;
use crate::world::{PAGE, World, fetch, notifying_send, short_send};
use allocations::calls;
use mapwire_nic::{BufferId, Completion, Nic, Source, Verdict};
use mapwire_wire::{
    CommandRepr, Endpoint, HandlerId, Header, INLINE_BYTES, NodeId, ProcessId, SIGNAL_TRAILER_BYTES, Signal,
};

#[path = "../../../../tests/allocations.rs"]
mod allocations;

/// Passes packets of `from` to `to` as headers and lengths: what the payload holds does not matter to the firmware.
fn pass(from: &mut Nic<Forgetful>, to: &mut Nic<Forgetful>, told: &mut u64) {
    let sender = from.node();
    while let Some(transmit) = from.poll_transmit() {
        let mut inline = [0; INLINE_BYTES];
        let header: Header = transmit.header;
        let receiver = transmit.to;
        let length = (header.payload_bytes() as usize).min(INLINE_BYTES);
        if let Source::Inline { bytes, .. } = &transmit.source {
            inline = *bytes;
        }
        assert_eq!(receiver, to.node());
        from.handle_transmitted(receiver);
        let trailer = || Signal::set(0, 1).to_bytes();
        let _: [u8; SIGNAL_TRAILER_BYTES] = trailer();
        let verdict = to.handle_packet(sender, &header, &inline[..length], trailer, BufferId(0));
        assert_eq!(verdict, Verdict::Taken);
        while let Some(dma) = to.poll_dma() {
            to.handle_dma_done(&dma, 0);
        }
        for nic in [&mut *from, &mut *to] {
            while let Some(completion) = nic.poll_completion() {
                let refused = matches!(completion, Completion::Failed { .. } | Completion::Rejected { .. });
                assert!(!refused, "{completion:?}");
                *told += 1;
            }
        }
    }
}

#[test]
fn a_steady_exchange_allocates_nothing() {
    const HERE: u64 = 0x10_0000;
    let mut world = World::new(2, 1);
    for node in 0..2 {
        world.open(node, 0);
        world.pin(node, 0, HERE, 4 * PAGE);
        world.nic(node).install_handler(HandlerId(1)).unwrap();
    }
    let export = world.export(1, 0, HERE, 4 * PAGE);
    let import = world.import(0, 0, 1, export, 4 * PAGE);
    let signal = Some(Signal::set(8, 1));
    let message = CommandRepr::Handler { to: Endpoint::first_of(NodeId(1)), handler: HandlerId(1), length: 16 };
    let commands = [
        (short_send(import, 0, &[1; 64], true, signal), 64),
        (notifying_send(import, 0, HERE + 100, 3 * PAGE, 1), 0),
        (fetch(import, 0, HERE + 50, 2 * PAGE, 2), 0),
        (message, 16),
    ];
    let commands = commands.map(|(command, length)| {
        let mut inline = [0; INLINE_BYTES];
        let (header, _) = command.emit(&[1; 64][..length], &mut inline).unwrap();
        (header, inline)
    });
    let [one, two] = &mut world.nodes[..] else {
        panic!("two nodes");
    };
    let (one, two) = (&mut one.nic, &mut two.nic);
    let mut told = 0;
    let mut exchange = |rounds: u64| {
        for _ in 0..rounds {
            for (header, inline) in &commands {
                while !one.accepts_command(ProcessId(0)) {
                    pass(one, two, &mut told);
                    pass(two, one, &mut told);
                }
                one.handle_command(ProcessId(0), header, inline);
            }
            pass(one, two, &mut told);
            pass(two, one, &mut told);
        }
    };
    exchange(10);
    let before = calls();
    exchange(100_000);
    assert_eq!(calls(), before);
    // Two notifications, two words and a message a round.
    assert_eq!(told, 5 * 100_010);
    assert_eq!(two.counters().rejected.total(), 0);
}
