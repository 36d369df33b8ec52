//! A client of two donors of which one changes the pages that it has.

use core::ops::{Deref, Range};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use mapwire_gms::{
    Client, ClientConfig, Config, FRAME_BYTES, Frames, Gms, Known, Loss, Member, NodeSet, PageName, PageWord, Place,
    SpaceId, Surroundings,
};
use mapwire_vmmc::service::{Action, Service};
use mapwire_wire::{Endpoint, NodeId};

const BYTES: usize = FRAME_BYTES as usize;
const FRAMES: u32 = 16;
const LIAR: usize = 1;
const TWO_COPIES: ClientConfig = ClientConfig { copies: 2, patience_ns: 0, pause_ns: 1, full_ns: 0 };

/// The client at node 0, the donors at the others, and a disk.
struct World {
    nodes: RefCell<Vec<(Gms, Vec<u8>)>>,
    frames: RefCell<Frames>,
    words: RefCell<BTreeMap<u64, PageWord>>,
    disk: RefCell<BTreeMap<u64, Vec<u8>>>,
    is_disk_full: Cell<bool>,
    /// Nothing that is sent arrives for now.
    is_late: Cell<bool>,
}

fn at(offset: u64) -> Range<usize> {
    offset as usize..offset as usize + BYTES
}

fn frame(number: u32) -> Range<usize> {
    at(u64::from(number) * FRAME_BYTES)
}

impl World {
    fn new() -> Self {
        let members: NodeSet = (0..3).map(NodeId).collect();
        let node = |node| {
            let mut gms = Gms::new(Config::new(NodeId(node), members, FRAMES, FRAMES / 2)).unwrap();
            if node > 0 {
                gms.donate(0, FRAMES / 2).unwrap();
            }
            (gms, vec![0; FRAMES as usize * BYTES])
        };
        let world = Self {
            nodes: RefCell::new((0..3).map(node).collect()),
            frames: RefCell::new(Frames::new(4)),
            words: RefCell::default(),
            disk: RefCell::default(),
            is_disk_full: Cell::new(false),
            is_late: Cell::new(false),
        };
        world.deliver();
        world
    }

    /// Delivers all that is sent.
    fn deliver(&self) {
        let nodes = &mut *self.nodes.borrow_mut();
        let mut packets = VecDeque::new();
        loop {
            for (node, (gms, memory)) in (0..).map(NodeId).zip(&mut *nodes) {
                while let Some(action) = gms.poll_action() {
                    packets.push_back(match action {
                        Action::Send { to, message } => (node, to.node, None, message.to_vec()),
                        Action::Store { to, region, at: target, message } => {
                            let stored = (target, memory[at(region.offset)].to_vec());
                            (node, to.node, Some(stored), message.to_vec())
                        }
                        other => panic!("{other:?}"),
                    });
                }
            }
            let Some((from, to, stored, message)) = packets.pop_front() else { return };
            let (gms, memory) = &mut nodes[usize::from(to.0)];
            if let Some((target, bytes)) = stored {
                memory[at(target)].copy_from_slice(&bytes);
            }
            assert_eq!(gms.handle_message(0, Endpoint::first_of(from), &message), Ok(()));
        }
    }

    /// The liar changes all pages that it has.
    fn lie(&self) {
        let (gms, memory) = &mut self.nodes.borrow_mut()[LIAR];
        gms.pages().for_each(|(.., number)| memory[frame(number).start] += 10);
    }
}

impl Member for World {
    type Id = u64;

    fn name(&self, id: u64) -> PageName {
        PageName::new(&SpaceId::Anonymous { node: 0, incarnation: 1, region: 0 }, id)
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn call<R>(&self, call: impl FnOnce(&mut Gms, u64) -> R) -> Option<R> {
        Some(call(&mut self.nodes.borrow_mut()[0].0, 0))
    }

    fn wait(&self, _ns: u64, mut check: impl FnMut(&mut Gms) -> bool) -> bool {
        if !self.is_late.get() {
            self.deliver();
        }
        check(&mut self.nodes.borrow_mut()[0].0)
    }

    fn frames<R>(&self, look: impl FnOnce(&mut Frames) -> R) -> R {
        look(&mut self.frames.borrow_mut())
    }

    fn take_frames(&self, of: Range<u32>, most: usize, _patience_ns: Option<u64>) -> Vec<u32> {
        self.frames.borrow_mut().take(of, most)
    }

    fn free(&self, frames: &[u32]) {
        self.frames.borrow_mut().free(frames);
    }

    fn write(&self, number: u32, bytes: &[u8]) {
        self.nodes.borrow_mut()[0].1[frame(number)].copy_from_slice(bytes);
    }

    fn read(&self, number: u32, bytes: &mut [u8]) -> bool {
        bytes.copy_from_slice(&self.nodes.borrow()[0].1[frame(number)]);
        true
    }

    fn load(&self, _place: Place, _bytes: &mut [u8]) -> bool {
        false
    }
}

impl Surroundings for World {
    type Id = u64;
    type Range = Range<u64>;
    type Error = Option<Loss>;
    type Session = Self;

    fn now_ns(&self) -> u64 {
        0
    }

    fn session(&self) -> Option<impl Deref<Target = Self>> {
        Some(self)
    }

    fn end_session(&self) {}

    fn word(&self, id: u64) -> PageWord {
        self.words.borrow().get(&id).copied().unwrap_or_default()
    }

    fn set_word(&self, id: u64, word: PageWord) {
        self.words.borrow_mut().insert(id, word);
    }

    fn each(&self, _of: Option<&Range<u64>>, _found: impl FnMut(u64)) {}

    fn write(&self, pages: &[(u64, &[u8])]) -> Result<(), Option<Loss>> {
        if self.is_disk_full.get() {
            return Err(None);
        }
        self.disk.borrow_mut().extend(pages.iter().map(|(id, bytes)| (*id, bytes.to_vec())));
        Ok(())
    }

    fn read(&self, pages: &mut [(u64, &mut [u8])]) -> Result<(), Option<Loss>> {
        for (id, bytes) in pages {
            bytes.copy_from_slice(self.disk.borrow().get(id).ok_or(None)?);
        }
        Ok(())
    }

    fn error(&self, _id: u64, why: Loss) -> Option<Loss> {
        Some(why)
    }

    fn alone<R>(&self, change: impl FnOnce() -> R) -> Option<R> {
        Some(change())
    }

    fn beside<R>(&self, change: impl FnOnce() -> R) -> R {
        change()
    }

    fn discards<R>(&self, look: impl FnOnce(&mut VecDeque<(PageName, u32)>) -> R) -> R {
        look(&mut VecDeque::new())
    }
}

/// Looks for the page as it was stored; whether the first bytes that came were wrong.
fn read(client: &Client, world: &World, id: u64, stored: &[u8]) -> bool {
    let mut bytes = vec![0; BYTES];
    let mut fetched = client.fetch(world, &mut [(id, &mut bytes)]);
    for attempt in 0.. {
        assert_eq!(fetched, Ok(()), "page {id}, attempt {attempt}");
        if bytes == stored {
            return attempt > 0;
        }
        // Other threads have requests, too: the donors that have the page do not just take turns.
        let other = world.call(|gms, now_ns| gms.discard(now_ns, world.name(u64::MAX), 1));
        assert_eq!(other, Some(Ok(())));
        fetched = client.fetch_other(world, id, &mut bytes, attempt);
    }
    unreachable!()
}

#[test]
fn a_page_of_which_one_of_two_copies_is_wrong_is_found_and_stored_again_even_where_the_disk_is_full() {
    for is_disk_full in [false, true] {
        let world = World::new();
        let client = Client::new(TWO_COPIES);
        world.is_disk_full.set(is_disk_full);
        let page = |id: u64| vec![id as u8; BYTES];
        let store = |id| client.store(&world, &[(id, &page(id)[..])]);
        for id in 0..6 {
            assert_eq!(store(id), Ok(()));
        }
        world.lie();
        let mut wrong = 0;
        for round in 0..4 {
            for id in 0..6 {
                let was_wrong = read(&client, &world, id, &page(id));
                wrong += u32::from(was_wrong);
                // As a pager does: what is not kept is stored again when it leaves the RAM.
                if !client.holds(&world, id) {
                    assert!(was_wrong, "page {id}, round {round}");
                    assert_eq!(store(id), Ok(()));
                }
            }
            world.lie();
        }
        assert!(wrong > 0);
    }
}

#[test]
fn donors_that_are_slow_are_asked_for_a_page_that_is_wrong_on_the_disk() {
    let world = World::new();
    let client = Client::new(TWO_COPIES);
    let page = [7; BYTES];
    assert_eq!(client.store(&world, &[(0, &page)]), Ok(()));
    world.lie();
    // What the liar has went to the disk as another donor died.
    world.disk.borrow_mut().insert(0, vec![8; BYTES]);
    let known = world.word(0).known().unwrap();
    world.set_word(0, PageWord::of(Known { is_on_disk: true, place: None, ..known }));
    world.is_late.set(true);
    let mut bytes = vec![0; BYTES];
    assert_eq!(client.fetch(&world, &mut [(0, &mut bytes)]), Ok(()));
    assert_eq!(bytes, [8; BYTES]);
    world.is_late.set(false);
    assert!(read(&client, &world, 0, &page));
}

#[test]
fn a_page_that_neither_two_donors_nor_the_disk_take_is_not_kept() {
    for copies in [1, 2] {
        let world = World::new();
        world.nodes.borrow_mut()[LIAR].0.donate(0, 0).unwrap();
        world.deliver();
        let client = Client::new(ClientConfig { copies, ..TWO_COPIES });
        world.is_disk_full.set(true);
        // It was lost with its donors while the program had it in RAM.
        world.set_word(0, PageWord::LOST);
        assert_eq!(client.store(&world, &[(0, &[7; BYTES])]), Err(None));
        assert!(!client.holds(&world, 0));
    }
}
