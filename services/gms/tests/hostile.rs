//! A node among peers that do not keep to the protocol.

use std::collections::BTreeSet;

use mapwire_gms::{Config, FRAME_BYTES, GetPage, Gms, KINDS, MAX_MESSAGE_BYTES, Message, NodeSet, PageName, PutPage};
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, NodeId, ProcessId};
use proptest::prelude::*;

const FRAMES: u32 = 16;
const POOL: u32 = 8;

fn node() -> Gms {
    let members: NodeSet = (0..3).map(NodeId).collect();
    let mut gms = Gms::new(Config::new(NodeId(0), members, FRAMES, POOL)).unwrap();
    gms.donate(0, POOL).unwrap();
    gms
}

fn from(node: u16) -> Endpoint {
    Endpoint::first_of(NodeId(node))
}

/// Takes all actions; a frame that is sent lies within the memory.
fn drain(gms: &mut Gms) -> usize {
    let mut count = 0;
    while let Some(action) = gms.poll_action() {
        count += 1;
        let message = match action {
            Action::Send { message, .. } => message,
            Action::Store { region, message, .. } => {
                assert!(region.offset + region.bytes <= u64::from(FRAMES) * FRAME_BYTES);
                message
            }
            other => panic!("it asks for {other:?}"),
        };
        assert!(message.len() <= MAX_MESSAGE_BYTES && Message::parse(message).is_ok());
    }
    while gms.poll_outcome().is_some() {}
    count
}

/// Frames are neither lost nor used twice.
fn check(gms: &Gms) {
    let uses = gms.frame_uses();
    let sum = uses.idle + uses.free + uses.granted + uses.pages + uses.draining;
    assert_eq!(sum, POOL, "{uses:?}");
    let frames: BTreeSet<_> = gms.pages().map(|(_, _, frame)| frame).collect();
    assert_eq!(frames.len() as u32, uses.pages);
    assert!(frames.iter().all(|frame| (FRAMES - POOL..FRAMES).contains(frame)));
}

fn call(gms: &mut Gms, number: u8) {
    let name = PageName { space: 1, page: u64::from(number % 3) };
    let tag = u64::from(number);
    let frame = u32::from(number) % (FRAMES - POOL);
    let get = GetPage { name, frame, tag, keep: number.is_multiple_of(2) };
    let put = PutPage {
        name,
        version: u32::from(number),
        frame,
        tag,
        checksum: 0,
        age_ms: 1,
        on_disk: number.is_multiple_of(2),
        copies: 1,
        to: Some(NodeId(1)),
    };
    // Too many at a time are refused.
    let _ = match number % 4 {
        0 => gms.get(1, get),
        1 => gms.put(1, put),
        2 => gms.discard(1, name, u32::from(number)),
        _ => gms.donate(1, u32::from(number) % (POOL + 1)),
    };
}

proptest! {
    #[test]
    fn no_message_of_a_peer_makes_a_node_panic_or_lose_a_frame(
        steps in proptest::collection::vec(
            (0u16..4, 0u8..=KINDS as u8 + 1, proptest::collection::vec(0u8..16, MAX_MESSAGE_BYTES), any::<u8>()),
            1..60,
        ),
    ) {
        let mut gms = node();
        let lengths: Vec<usize> = (0..=MAX_MESSAGE_BYTES).collect();
        for (peer, kind, mut bytes, number) in steps {
            if kind == 0 {
                call(&mut gms, number);
            } else {
                bytes[0] = kind;
                // Small numbers mean something; most fields are wider, so high bytes are mostly 0.
                for (at, byte) in bytes.iter_mut().enumerate().skip(1) {
                    if !(at + usize::from(number)).is_multiple_of(4) {
                        *byte = 0;
                    }
                }
                let fits = lengths.iter().find(|&&length| Message::parse(&bytes[..length]).is_ok());
                let length = fits.copied().unwrap_or(usize::from(number));
                let _ = gms.handle_message(1, from(peer), &bytes[..length]);
            }
            prop_assert!(drain(&mut gms) < 10_000);
            check(&gms);
        }
    }
}

fn tell(gms: &mut Gms, peer: u16, message: &Message) -> Result<(), Broken> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let told = gms.handle_message(1, from(peer), &bytes);
    drain(gms);
    told
}

#[test]
fn a_page_in_a_frame_that_was_not_granted_is_a_breach() {
    let mut gms = node();
    let put = Message::Put { sequence: 1, frame: FRAMES - 1, moves: false, page: Default::default() };
    assert_eq!(tell(&mut gms, 1, &put), Err(Broken));
    assert_eq!(tell(&mut gms, 1, &Message::Want), Ok(()));
    // The frame is granted to node 1, not to node 2.
    let granted = (FRAMES - POOL..FRAMES).find(|&frame| {
        let put = Message::Put { sequence: 1, frame, moves: false, page: Default::default() };
        let mut copy = node();
        tell(&mut copy, 1, &Message::Want).unwrap();
        tell(&mut copy, 2, &put).is_err() && tell(&mut copy, 1, &put).is_ok()
    });
    assert!(granted.is_some());
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut gms = node();
    let stored = Message::Stored { sequence: 1, grant: None };
    assert_eq!(tell(&mut gms, 1, &stored), Err(Broken));
    let landed = Message::Landed { sequence: 1, is_taken: true };
    assert_eq!(tell(&mut gms, 1, &landed), Err(Broken));
    let frames = [1, 2].into_iter().collect();
    assert_eq!(tell(&mut gms, 1, &Message::Grant { frames }), Err(Broken));
    assert_eq!(tell(&mut gms, 1, &Message::Return { frames }), Err(Broken));
    let page = Message::Page { sequence: 1, page: Default::default() };
    assert_eq!(tell(&mut gms, 1, &page), Ok(()));
    assert!(!gms.has_outcomes());
    check(&gms);
}

#[test]
fn a_message_of_another_process_or_of_a_number_beyond_all_nodes_is_a_breach() {
    let mut gms = node();
    let mut bytes = Vec::new();
    Message::Want.encode(&mut bytes);
    let other = Endpoint { node: NodeId(1), process: ProcessId(1) };
    assert_eq!(gms.handle_message(1, other, &bytes), Err(Broken));
    assert_eq!(gms.handle_message(1, from(300), &bytes), Err(Broken));
    assert_eq!(gms.handle_message(1, from(0), &bytes), Err(Broken));
}
