//! Several minipages of a page in one message: which bytes are stored, and that one message follows all of them.

use mapwire_dsm::{Access, Config, Dsm, Key, Message, Outcome, Views};
use mapwire_node::SharedMemory;
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

const BYTES: u64 = 64;

/// What a rank of two sends the other: the bytes that it stores, and the messages.
fn drain(rank: &mut SharedMemory) -> (Vec<(u64, u64)>, Vec<Vec<u8>>) {
    let (mut stored, mut messages) = (Vec::new(), Vec::new());
    while let Some(action) = rank.poll_action() {
        match action {
            Action::Send { message, .. } => messages.push(message.to_vec()),
            Action::Store { region, at, message, .. } => {
                assert_eq!(at, region.offset);
                stored.push((region.offset, region.bytes));
                messages.extend((!message.is_empty()).then(|| message.to_vec()));
            }
            _ => {}
        }
    }
    (stored, messages)
}

#[test]
fn no_byte_is_stored_that_is_not_of_a_minipage_in_the_set_and_adjacent_ones_are_stored_at_once() {
    let peer = Endpoint::first_of(NodeId(1));
    let config = Config { chunk_pages: 1, hold_ns: 0, ..Config::new(0, 2, 1, 64, 64) };
    let mut owner = SharedMemory::new(Dsm::new(config).unwrap(), 1);
    owner.hear(peer);
    let mut page = 1;
    while owner.dsm().manager(page) != Some(0) {
        page += 1;
    }
    let mut minipages = Vec::new();
    while minipages.len() < 64 {
        owner.dsm_mut().alloc(0, BYTES).unwrap();
        let (_, asked) = drain(&mut owner);
        if let Some(Ok((Message::Register { thread, .. }, _))) = asked.first().map(|message| Message::parse(message)) {
            owner.dsm_mut().handle_message(0, 1, Message::Registered { thread }, &[]).unwrap();
            drain(&mut owner);
        }
        let Some(Ok(Outcome::Allocated(address))) = owner.take_outcome(0) else { panic!("nothing allocated") };
        minipages.extend((address.offset_bytes / 4096 == page).then_some(address));
    }
    for mask in [1, 0b11, 0b101, 0b1110_0111, u64::MAX, 0x8000_0000_0000_0001, 0xF0F0_F0F0_F0F0_F0F1] {
        let views = Views::new(mask).unwrap();
        let key = Key { view: 0, page: page as u32 };
        // Numbers of prefetches follow those of threads.
        let request = Message::Request { thread: 1, key, access: Access::Read, views };
        owner.dsm_mut().handle_message(0, 1, request, &[]).unwrap();
        let (stored, messages) = drain(&mut owner);
        let offset = |at: u16| minipages[usize::from(at)].offset_bytes;
        let expected: Vec<_> = views.runs().map(|(first, count)| (offset(first), u64::from(count) * BYTES)).collect();
        assert_eq!(stored, expected);
        let [message] = &messages[..] else { panic!("{} messages", messages.len()) };
        let granted = Message::parse(message);
        assert!(matches!(granted, Ok((Message::Grant { data: true, done: false, .. }, _))), "{granted:?}");
        assert_eq!(granted.unwrap().0.views(), views);
        let hull = (page * 4096, (u64::from(views.iter().last().unwrap()) + 1) * BYTES);
        assert_eq!(owner.stored_before(message), Some(hull));
        // What it has now must not hide what is stored next.
        for at in views.iter() {
            let key = Key { view: at, ..key };
            let request = Message::Request { thread: 0, key, access: Access::Write, views: Views::ONE };
            owner.dsm_mut().handle_message(0, 1, request, &[]).unwrap();
            drain(&mut owner);
            let _ = owner.dsm_mut().handle_fault(0, 0, at, page, Access::Write).unwrap();
            let (_, forwarded) = drain(&mut owner);
            let Ok((Message::Forward { minipage, thread, access, acks, .. }, _)) = Message::parse(&forwarded[0]) else {
                panic!("nothing forwarded")
            };
            let grant = Message::Grant { minipage, thread, access, acks, data: true, done: false, views: Views::ONE };
            owner.dsm_mut().handle_message(0, 1, grant, &[]).unwrap();
            drain(&mut owner);
            assert!(matches!(owner.take_outcome(0), Some(Ok(Outcome::Served(Access::Write)))));
        }
    }
}
