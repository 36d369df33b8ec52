//! Drivers of one process over a fabric that has packets and perhaps datagrams, and nothing else: no bells that wake, no news, no memory
//! passed to the other driver.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mapwire_host::memory::SharedBuffer;
use mapwire_translation::PageRange;
use mapwire_transport::bells::{Sleeper, Slept, Wake};
use mapwire_transport::board::{Figures, RankState};
use mapwire_transport::fabric::{Doorbells, Fabric, News};
use mapwire_transport::net::Net;
use mapwire_transport::payload::{Payload, Received};
use mapwire_transport::rendezvous::RendezvousError;
use mapwire_transport::transport::{Abilities, Packet, ReceiveError, SendError, Transport};
use mapwire_vmmc::Importers;
use mapwire_wire::{CommandRepr, Header, MAX_PAYLOAD_BYTES, NodeId, Rights};

use super::super::Driver;
use crate::completions::CompletionWords;
use crate::config::DriverConfig;
use crate::exports::{DirectMemory, ExportRequest};

const BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Silent;

impl Doorbells for Silent {
    fn enter_polling(&self) {}
    fn keep_polling(&self) {}
    fn leave_polling(&self) -> bool {
        false
    }
    fn is_polling(&self) -> bool {
        false
    }
    fn ring(&self, _: NodeId) {}
    fn hint(&self, _: NodeId) {}
    fn rouse(&self, _: NodeId) {}
    fn wake(&self, _: NodeId, _: Wake) {}
    fn service_rings(&self) -> u32 {
        0
    }
    fn sleep(
        &self,
        _: Sleeper,
        mut recheck: impl FnMut(bool) -> bool,
        _: Option<Duration>,
        _: impl FnMut() -> Duration,
    ) -> Slept {
        Slept { found: recheck(false), was_rung: false }
    }
    fn state(&self, _: NodeId) -> RankState {
        RankState::Joined
    }
    fn show_openings(&self, _: u32) {}

    fn openings(&self, _: NodeId) -> Option<u32> {
        None
    }

    fn publish(&self, _: &Figures) {}
}

/// A packet in the queue of its receiver.
type Sent = (NodeId, Header, Vec<u8>);

/// Packets between nodes, in queues of this process.
#[derive(Debug)]
pub(super) struct Queues {
    me: NodeId,
    queues: Arc<[Mutex<VecDeque<Sent>>]>,
    head: Option<Sent>,
}

impl Queues {
    /// Those of a node that sends to itself only.
    pub(super) fn alone(me: NodeId) -> Self {
        Self { me, queues: (0..=me.0).map(|_| Mutex::default()).collect(), head: None }
    }

    fn queue(&self, of: NodeId) -> std::sync::MutexGuard<'_, VecDeque<Sent>> {
        self.queues[usize::from(of.0)].lock().unwrap()
    }
}

impl Transport for Queues {
    fn abilities(&self, _: NodeId) -> Abilities {
        Abilities { passes_memory: false, ..Abilities::RINGS }
    }

    fn max_payload_bytes(&self) -> usize {
        MAX_PAYLOAD_BYTES
    }

    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        let mut bytes = vec![0; payload.len_bytes()];
        let mut rest = &mut bytes[..];
        for piece in payload.pieces() {
            let (part, others) = rest.split_at_mut(piece.len());
            piece.copy_to_slice(part);
            rest = others;
        }
        self.queue(to).push_back((self.me, *header, bytes));
        Ok(())
    }

    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        if self.head.is_none() {
            let next = self.queue(self.me).pop_front();
            self.head = next;
        }
        Ok(self.head.as_ref().map(|(from, header, bytes)| Packet {
            from: *from,
            header,
            payload: Received::Inline(bytes),
        }))
    }

    fn release(&mut self, _: NodeId) {
        self.head = None;
    }

    fn has_input(&mut self) -> bool {
        self.head.is_some() || !self.queue(self.me).is_empty()
    }

    fn flush(&mut self) {}

    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        Ok(self.queue(to).is_empty())
    }

    fn disconnect(&mut self, _: NodeId) {}
}

/// A transport, and what else a fabric must have.
#[derive(Debug)]
pub(super) struct Bare<T> {
    transport: T,
    net: Option<Net>,
    me: NodeId,
    bells: Arc<Silent>,
    /// Memory can be passed to this process itself, as where some peers are on its host.
    passes_to_itself: bool,
    peers: Vec<NodeId>,
}

impl<T> Bare<T> {
    /// Over `transport` and, where there is one, `net`, which then leads to all of the other `nodes`.
    pub(super) fn new(transport: T, net: Option<Net>, me: NodeId, nodes: u16) -> Self {
        Self {
            transport,
            net,
            me,
            bells: Arc::new(Silent),
            passes_to_itself: false,
            peers: (0..nodes).map(NodeId).collect(),
        }
    }
}

impl<T: Transport> Transport for Bare<T> {
    fn abilities(&self, peer: NodeId) -> Abilities {
        let is_me = peer == self.me;
        match self.net.is_some() && !is_me {
            true => Abilities::DATAGRAMS,
            false => Abilities { passes_memory: self.passes_to_itself && is_me, ..self.transport.abilities(peer) },
        }
    }

    fn max_payload_bytes(&self) -> usize {
        let of_packets = self.transport.max_payload_bytes();
        match &self.net {
            Some(_) => of_packets.min(Net::max_payload_bytes()),
            None => of_packets,
        }
    }

    fn send(&mut self, to: NodeId, header: &Header, payload: Payload<'_>) -> Result<(), SendError> {
        self.transport.send(to, header, payload)
    }

    fn poll_receive(&mut self) -> Result<Option<Packet<'_>>, ReceiveError> {
        self.transport.poll_receive()
    }

    fn release(&mut self, from: NodeId) {
        self.transport.release(from);
    }

    fn has_input(&mut self) -> bool {
        self.transport.has_input()
    }

    fn flush(&mut self) {
        self.transport.flush();
    }

    fn drained(&mut self, to: NodeId) -> Result<bool, SendError> {
        self.transport.drained(to)
    }

    fn disconnect(&mut self, peer: NodeId) {
        self.transport.disconnect(peer);
    }
}

impl<T: Transport + Debug + Send + 'static> Fabric for Bare<T> {
    type Bells = Silent;

    fn me(&self) -> NodeId {
        self.me
    }
    fn size(&self) -> usize {
        self.peers.len()
    }
    fn uid(&self) -> u32 {
        0
    }
    fn bells(&self) -> &Arc<Silent> {
        &self.bells
    }
    fn datagrams(&mut self) -> Option<&mut Net> {
        self.net.as_mut()
    }
    fn has_news(&self) -> bool {
        false
    }
    fn poll_news(&mut self) -> Option<News> {
        None
    }
    fn request_connection(&mut self, _: NodeId) -> Result<(), RendezvousError> {
        Ok(())
    }
    fn pass(&mut self, to: NodeId, _: u64, _: BorrowedFd<'_>) -> Result<(), RendezvousError> {
        panic!("{to} was promised memory that cannot be passed to it")
    }
    fn leave(&mut self) -> Result<(), RendezvousError> {
        Ok(())
    }
    fn peers(&self) -> &[NodeId] {
        &self.peers
    }
    fn most_waiting(&self) -> usize {
        64
    }
    fn has_next(&mut self, _: NodeId) -> bool {
        self.transport.has_input()
    }
    fn bury(&mut self) {}
}

struct Pair {
    drivers: [Driver<Bare<Queues>>; 2],
    words: [Arc<CompletionWords>; 2],
}

impl Pair {
    fn new(passes_to_itself: bool) -> Self {
        let queues: Arc<[_]> = (0..2).map(|_| Mutex::default()).collect();
        let words = [(); 2].map(|()| Arc::new(CompletionWords::new()));
        let driver = |number: u16| {
            let me = NodeId(number);
            let packets = Queues { me, queues: Arc::clone(&queues), head: None };
            let bare = Bare { passes_to_itself, ..Bare::new(packets, None, me, 2) };
            let peers = crate::peer_words::PeerWords::new(2).unwrap();
            let words = Arc::clone(&words[usize::from(number)]);
            Driver::new(&DriverConfig::default(), bare, peers, words).unwrap()
        };
        Self { drivers: [driver(0), driver(1)], words }
    }

    fn run_until(&mut self, mut is_over: impl FnMut(&mut Self) -> bool) {
        for _ in 0..10_000 {
            if is_over(self) {
                return;
            }
            for driver in &mut self.drivers {
                driver.poll();
            }
        }
        panic!("it does not end");
    }

    /// Node 0 gives a command whose memory is `range`, and waits for it.
    fn command(&mut self, range: PageRange, command: impl FnOnce(u32) -> CommandRepr) {
        let word = self.words[0].take().unwrap();
        self.drivers[0].hold(word, range).unwrap();
        assert!(self.drivers[0].submit(&command(word), &[]).unwrap());
        self.run_until(|pair| pair.words[0].is_over(word));
        self.words[0].finish(word).unwrap().unwrap();
    }
}

#[test]
fn over_a_fabric_that_passes_no_memory_imports_go_by_packets_and_all_works() {
    store_fetch_and_notify(Pair::new(false));
}

#[test]
fn imports_go_by_packets_for_the_peers_that_memory_cannot_be_passed_to() {
    store_fetch_and_notify(Pair::new(true));
}

fn store_fetch_and_notify(mut pair: Pair) {
    let buffer = Arc::new(Mutex::new(SharedBuffer::allocate("bare", BYTES).unwrap()));
    let address = buffer.lock().unwrap().as_ptr().addr() as u64;
    let told = Arc::new(Mutex::new(Vec::new()));
    let handler = Arc::clone(&told);
    let request = ExportRequest {
        name: "memory".into(),
        address,
        length: BYTES as u64,
        rights: Rights::ALL,
        importers: Importers::Job,
        direct: Some(DirectMemory::Buffer(Arc::clone(&buffer))),
        handler: Some(Arc::new(move |notification| {
            handler.lock().unwrap().push(notification);
        })),
    };
    pair.drivers[1].export(request).unwrap();
    let timeout_ns = 10_000_000_000;
    let asked = pair.drivers[0].ask_import(NodeId(1), "memory", Rights::ALL, None, timeout_ns);
    let asked = asked.unwrap();
    let mut import = None;
    pair.run_until(|pair| {
        import = pair.drivers[0].take_import(asked);
        import.is_some()
    });
    let import = import.unwrap().unwrap();
    assert!(import.mapped.is_none(), "there is nothing to map");

    let mine = SharedBuffer::allocate("bare", 2 * BYTES).unwrap();
    let from = mine.as_ptr().addr() as u64;
    let back = from + BYTES as u64;
    let data: Vec<u8> = (0..BYTES).map(|at| at as u8 | 1).collect();
    mine.write(0, &data).unwrap();
    let range = |address| PageRange::covering(address, BYTES as u64).unwrap();
    pair.command(range(from), |completion| CommandRepr::LongSend {
        import: import.id,
        offset: 0,
        address: from,
        length: BYTES as u64,
        notify: true,
        signal: None,
        completion,
    });
    pair.run_until(|pair| pair.drivers[1].outcomes().owes_program());
    let notice = pair.drivers[1].outcomes().take_notice().unwrap();
    (notice.handler)(notice.notification);
    assert_eq!(told.lock().unwrap()[0].length, BYTES as u64);
    let mut there = vec![0; BYTES];
    buffer.lock().unwrap().read(0, &mut there).unwrap();
    assert!(there == data);

    pair.command(range(back), |completion| CommandRepr::Fetch {
        import: import.id,
        offset: 0,
        address: back,
        length: BYTES as u64,
        completion,
    });
    let mut fetched = vec![0; BYTES];
    mine.read(BYTES, &mut fetched).unwrap();
    assert!(fetched == data);
}
