//! What is lost towards a peer that takes nothing, and who is told.

mod bare_fabric;
mod conformance;

use std::sync::Arc;

use mapwire_dsm::{Access, Config as ModelConfig, Dsm, Key, MAX_MESSAGE_BYTES, Message, Progress, Views};
use mapwire_host::faults::{FaultBackend, PageProtection};
use mapwire_host::views::{MultiView, ViewLayout};
use mapwire_node::{SharedEnd, SharedMemory};
use mapwire_transport::job::JobFabric;
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{CommandRepr, Endpoint, HandlerId, ImportId, NodeId, Rights};

use super::Driver;
use super::confined::{Caller, Confined};
use crate::breach::Breach;
use crate::completions::CompletionWords;
use crate::config::DriverConfig;
use crate::error::DriverError;
use crate::events::Events;
use crate::ids::PROCESS;
use crate::log::Line;
use crate::peer_words::PeerWords;
use crate::service_memory::{MemoryFault, ServiceMemory};
use crate::threads::MAX_THREADS;

const PEER: NodeId = NodeId(1);
/// Handler of the shared memory.
const SHARED_HANDLER: HandlerId = HandlerId(1);

/// Sends a message of the program.
fn send(driver: &mut Driver, to: NodeId, handler: HandlerId, message: &[u8]) {
    let command = CommandRepr::Handler { to: Endpoint::first_of(to), handler, length: message.len() as u32 };
    assert!(driver.submit(&command, message).unwrap());
}

/// Sends to the peer until a message is lost.
#[derive(Debug, Default)]
struct Flood {
    is_over: bool,
}

impl Service for Flood {
    fn handle_message(&mut self, _: u64, _: Endpoint, _: &[u8]) -> Result<(), Broken> {
        Ok(())
    }

    fn handle_peer_gone(&mut self, _: u64, _: NodeId) {}

    fn handle_lost(&mut self, to: Endpoint) {
        assert_eq!(to.node, PEER);
        self.is_over = true;
    }

    fn handle_time(&mut self, _: u64) {}

    fn poll_action(&mut self) -> Option<Action<'_>> {
        let to = Endpoint::first_of(PEER);
        (!self.is_over).then_some(Action::Send { to, message: &[1] })
    }

    fn poll_at(&self) -> Option<u64> {
        None
    }
}

/// Fills the queue of the peer.
fn flood(driver: &mut Driver) {
    let flood = Box::new(Flood::default());
    driver.local.node.register(PROCESS, HandlerId(9), flood).unwrap();
    driver.serve_services();
}

/// A driver whose peer is never connected.
fn driver() -> Driver {
    driver_with(Arc::new(CompletionWords::new()))
}

fn driver_with(words: Arc<CompletionWords>) -> Driver {
    let local = JobFabric::without_broker(2).unwrap();
    let peers = PeerWords::new(2).unwrap();
    Driver::new(&DriverConfig::default(), local, peers, words).unwrap()
}

/// Opens shared memory at `base`. The peer has shown no view of its own.
fn open_shared(driver: &mut Driver, base: usize) {
    let layout = ViewLayout::new(base, 1 << 16, 1).unwrap();
    let views = Arc::new(MultiView::new("test", layout).unwrap());
    let protection = PageProtection::new(FaultBackend::Sigsegv, Arc::clone(&views)).unwrap();
    let config = ModelConfig::new(0, 2, MAX_THREADS as u16, layout.pages() as u32, 1);
    let model = SharedMemory::new(Dsm::new(config).unwrap(), 1).with_meetings();
    let memory = ServiceMemory::of_views(2, "test".to_owned(), views, protection);
    driver.register_service(SHARED_HANDLER, Box::new(model), Some(memory)).unwrap();
}

fn call_shared<T>(driver: &mut Driver, call: impl FnOnce(&mut SharedMemory) -> T) -> T {
    driver.ask_service(SHARED_HANDLER, call).unwrap()
}

/// What this computer has found wrong with the shared memory.
fn fault(driver: &mut Driver) -> Option<MemoryFault> {
    driver.service_memory(SHARED_HANDLER).unwrap().fault().cloned()
}

#[test]
fn a_peer_without_a_view_gets_no_grant_and_its_memory_is_at_fault() {
    let mut driver = driver();
    open_shared(&mut driver, 0x4200_0000_0000);
    // This rank manages page 0, and so knows of the minipage at once.
    assert_eq!(call_shared(&mut driver, |memory| memory.dsm_mut().alloc(0, 64)), Ok(()));
    driver.carry_out();
    assert!(fault(&mut driver).is_none());
    assert!(driver.local.node.idle_towards(PEER));
    let request =
        Message::Request { thread: 0, key: Key { view: 0, page: 0 }, access: Access::Read, views: Views::ONE };
    let mut bytes = [0; MAX_MESSAGE_BYTES];
    let length = request.encode(&mut bytes);
    let peer = Endpoint::first_of(PEER);
    let take = |driver: &mut Driver| call_shared(driver, |memory| memory.handle_message(0, peer, &bytes[..length]));
    // It may be left of an opening before this one.
    assert_eq!(take(&mut driver), Ok(()));
    driver.carry_out();
    assert!(fault(&mut driver).is_none());
    call_shared(&mut driver, |memory| {
        memory.hear(peer);
        memory.handle_met(peer);
    });
    assert_eq!(take(&mut driver), Ok(()));
    driver.carry_out();
    let fault = fault(&mut driver);
    assert!(matches!(fault, Some(MemoryFault::Unmet(PEER))), "{fault:?}");
    assert!(driver.local.node.idle_towards(PEER), "no grant without its data");
}

#[test]
fn a_peer_counts_as_gone_when_a_control_message_to_it_is_lost() {
    let mut driver = driver();
    flood(&mut driver);
    let request = driver.ask_import(PEER, "a", Rights::STORE, None, 1_000_000_000);
    assert!(driver.is_gone(PEER));
    let outcome = driver.take_import(request.unwrap());
    let (peer, breach) = (PEER, Breach::Node(mapwire_node::Breach::Overfull));
    assert!(
        matches!(outcome, Some(Err(DriverError::PeerBroken { peer: at, breach: why })) if (at, why) == (peer, breach)),
        "{outcome:?}"
    );
    let line = driver.outcomes().take_line();
    assert!(matches!(line, Some(Line::PeerBroken { node, breach: why }) if (node, why) == (peer, breach)), "{line:?}");
}

#[test]
fn a_lost_message_of_the_shared_memory_ends_it_and_nothing_else() {
    let mut driver = driver();
    flood(&mut driver);
    open_shared(&mut driver, 0x4000_0000_0000);
    call_shared(&mut driver, |memory| memory.handle_met(Endpoint::first_of(PEER)));
    // The peer manages lock 1.
    assert_eq!(call_shared(&mut driver, |memory| memory.dsm_mut().lock(0, 1)), Ok(Progress::Pending));
    driver.carry_out();
    assert_eq!(call_shared(&mut driver, |memory| memory.end()), Some(SharedEnd::Lost(PEER)));
    assert!(!driver.is_gone(PEER));
}

#[test]
fn shared_memory_opened_after_a_rank_has_gone_says_so() {
    let mut driver = driver();
    driver.paths.handle_gone(&mut driver.local, PEER);
    open_shared(&mut driver, 0x4100_0000_0000);
    assert_eq!(call_shared(&mut driver, |memory| memory.end()), Some(SharedEnd::Gone(PEER)));
}

#[test]
fn what_the_fault_handler_leaves_keeps_the_service_thread_awake_and_is_news_to_a_send() {
    const ME: NodeId = NodeId(0);
    let mut driver = driver();
    send(&mut driver, ME, HandlerId::CONTROL, b"no control message");
    driver.paths.transmit(&mut driver.local);
    driver.on_behalf_of(Caller::FaultHandler, Driver::poll, Confined::poll);
    assert!(driver.has_left() && !driver.outcomes().owes_program());
    assert!(driver.needs_service(), "the service thread is woken");
    assert!(!driver.needs_service(), "once");
    assert!(driver.has_left(), "it looks for this before it sleeps again");
    driver.take_news_of(PEER);
    assert!(!driver.has_left());
    assert!(matches!(driver.outcomes().take_line(), Some(Line::PeerBroken { node: ME, .. })));
}

#[test]
fn a_fault_on_a_thread_of_the_library_leaves_nothing_to_others() {
    let served = std::thread::spawn(|| {
        mapwire_host::masking::mask_for_good();
        let mut driver = driver();
        send(&mut driver, NodeId(0), HandlerId::CONTROL, b"no control message");
        driver.paths.transmit(&mut driver.local);
        let _in_handler = mapwire_host::masking::in_fault_handler();
        driver.on_behalf_of(Caller::FaultHandler, Driver::poll, Confined::poll);
        !driver.has_left() && driver.outcomes().owes_program()
    });
    assert!(served.join().unwrap());
}

#[test]
fn commands_that_the_fault_handler_leaves_wake_the_service_thread() {
    let mut driver = driver();
    let command = CommandRepr::ShortSend { import: ImportId(0), offset: 0, length: 0, notify: false, signal: None };
    assert!(driver.enqueue(&command, &[]).unwrap());
    driver.on_behalf_of(Caller::FaultHandler, Driver::poll, Confined::poll);
    assert!(driver.needs_service());
    driver.poll();
    assert!(!driver.queue.has_commands());
}

#[test]
fn a_turn_that_takes_a_packet_may_leave_others_and_only_one_that_finds_none_has_seen_all_rings() {
    let mut driver = driver();
    send(&mut driver, NodeId(0), SHARED_HANDLER, &[]);
    driver.paths.transmit(&mut driver.local);
    assert!(driver.poll());
    assert!(!driver.paths().has_seen_all());
    driver.poll();
    assert!(driver.paths().has_seen_all());
}

#[test]
fn looks_after_a_turn_that_found_nothing_are_glances_until_a_packet_comes_or_another_turn_is_due() {
    let mut driver = driver();
    assert!(!driver.paths().may_only_glance(), "no turn has found nothing yet");
    while driver.poll() {}
    assert!(driver.paths().may_only_glance());
    send(&mut driver, NodeId(0), SHARED_HANDLER, &[]);
    assert!(!driver.paths().may_only_glance(), "a packet waits");
    assert!(driver.poll());
    assert!(!driver.paths().may_only_glance(), "a turn that worked is not the last");
    while driver.poll() {}
    let glances = (0..100).take_while(|_| driver.paths().may_only_glance());
    assert_eq!(glances.count(), crate::paths::MOST_GLANCES as usize);
}

#[test]
fn a_request_that_ends_in_a_call_of_another_thread_makes_a_descriptor_readable() {
    let words = Arc::new(CompletionWords::new());
    let mut driver = driver_with(Arc::clone(&words));
    let events = Arc::new(Events::new().unwrap());
    driver.outcomes().add_events(Arc::clone(&events));
    let word = words.take().unwrap();
    let command = CommandRepr::Fetch {
        // Of no import, so that it ends at once.
        import: ImportId(0),
        offset: 0,
        address: 0,
        length: 1,
        completion: word,
    };
    let is_readable = || rustix::io::read(&events, &mut [0; 8]).is_ok();
    events.arm();
    assert!(driver.enqueue(&command, &[]).unwrap());
    assert!(!is_readable());
    let other = CommandRepr::Handler { to: Endpoint::first_of(NodeId(0)), handler: SHARED_HANDLER, length: 0 };
    assert!(driver.submit(&other, &[]).unwrap());
    assert!(words.is_over(word));
    assert!(is_readable());
}
