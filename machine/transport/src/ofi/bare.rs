//! Messages and stores of an endpoint as they are, without windows, numbers and ends of peers: what measurements stand beside.
//!
//! As `fi_pingpong` does, both sides send from and receive into buffers of the endpoint, without a copy. As `fi_rma_bw` does, stores go
//! from registered memory to registered memory; a message behind a store says that it is there.

use std::collections::VecDeque;
use std::sync::Arc;

use mapwire_host::mapping::Mapping;

use super::OfiConfig;
use super::error::OfiError;
use super::open_endpoint;
use super::rma::{Direction, LocalPiece, Region, RemoteMemory, RemoteRights};
use super::sys::{Endpoint, Event, FabricAddress, OPERATIONS, PostError, Slot};

/// An endpoint with one peer.
#[derive(Debug)]
pub struct Bare {
    endpoint: Endpoint,
    events: Vec<Event>,
    peer: Option<FabricAddress>,
    /// The buffer that is sent next.
    next: Option<Slot>,
    /// Others that nothing is sent from.
    free: Vec<Slot>,
    /// Messages on their way.
    sending: usize,
    arrived: VecDeque<(Slot, usize)>,
    stores: Option<Stores>,
    failed: bool,
}

/// Memory for stores, of which half is stored from and half stored to.
#[derive(Debug)]
struct Stores {
    memory: Arc<Mapping>,
    half_bytes: usize,
    region: Arc<Region>,
    target: Region,
    peers: Option<RemoteMemory>,
    free: Vec<usize>,
}

impl Bare {
    /// Opens an endpoint for messages of `message_bytes`, with `count` buffers each way, and `store_bytes` to store from and as many to
    /// store to, where the provider has stores.
    ///
    /// # Errors
    /// As [`Ofi::open_with`](super::Ofi::open_with).
    pub fn open(provider: &str, message_bytes: usize, count: usize, store_bytes: usize) -> Result<Self, OfiError> {
        let bytes = message_bytes.next_multiple_of(64);
        let config = OfiConfig::new(provider);
        let (mut endpoint, _) = open_endpoint(&config, bytes, 2 * count)?;
        let slots = endpoint.grow()?;
        let (sends, receives) = (slots.start..slots.start + count, slots.start + count..slots.end);
        for slot in receives {
            if let Err(PostError::Failed(code)) = endpoint.receive(slot) {
                return Err(endpoint.error(code));
            }
        }
        let stores = match endpoint.info().has_rma() {
            true => Some(Stores::new(&endpoint, store_bytes)?),
            false => None,
        };
        Ok(Self {
            stores,
            endpoint,
            events: Vec::with_capacity(64),
            peer: None,
            next: None,
            free: sends.collect(),
            sending: 0,
            arrived: VecDeque::with_capacity(count),
            failed: false,
        })
    }

    /// What the peer needs to connect.
    ///
    /// # Errors
    /// The provider tells no address.
    pub fn address(&self) -> Result<Vec<u8>, OfiError> {
        self.endpoint.address()
    }

    /// Where the peer may store to, if it can.
    #[must_use]
    pub fn target(&self) -> Option<RemoteMemory> {
        Some(self.stores.as_ref()?.target.remote())
    }

    /// What the peer stores to is here.
    pub fn aim(&mut self, at: RemoteMemory) {
        if let Some(stores) = &mut self.stores {
            stores.peers = Some(at);
        }
    }

    /// The address of `bytes` at `offset` of the memory that is stored from, or, with `is_ours` false, to. `None` where there are no stores.
    #[must_use]
    pub fn memory(&self, is_ours: bool, offset: usize, bytes: usize) -> Option<*mut u8> {
        let stores = self.stores.as_ref()?;
        let half = if is_ours { 0 } else { stores.half_bytes };
        (offset.checked_add(bytes)? <= stores.half_bytes).then(|| stores.memory.at(half + offset, bytes))
    }

    /// Begins to store `bytes` at `offset` to the same place of the peer. False when there is no room now: poll, then try again.
    ///
    /// # Errors
    /// There is no peer, or it has told no memory.
    pub fn store(&mut self, offset: usize, bytes: usize) -> Result<bool, OfiError> {
        let peer = self.peer.ok_or(OfiError::BadName("no peer"))?;
        let stores = self.stores.as_mut().ok_or(OfiError::BadName("no stores"))?;
        let remote = stores.peers.ok_or(OfiError::BadName("no memory of the peer"))?;
        let place = remote.place(offset as u64, bytes as u64);
        let place = place.ok_or(OfiError::BadName("outside the peer's memory"))?;
        let Some(number) = stores.free.pop() else {
            return Ok(false);
        };
        let piece = LocalPiece { region: &stores.region, offset, bytes };
        let begun = self.endpoint.transfer(number, Direction::Store, peer, (remote.key, place), &[piece]);
        if begun.is_err() {
            stores.free.push(number);
        }
        match begun {
            Ok(()) => Ok(true),
            Err(PostError::Again) => Ok(false),
            Err(PostError::Failed(code)) => Err(self.endpoint.error(code)),
        }
    }

    /// Stores under way.
    #[must_use]
    pub fn stores_under_way(&self) -> usize {
        self.stores.as_ref().map_or(0, |stores| OPERATIONS - stores.free.len())
    }

    /// Connects to the peer. Messages go out as soon as it has opened its endpoint.
    ///
    /// # Errors
    /// The provider refuses its address.
    pub fn connect(&mut self, address: &[u8]) -> Result<(), OfiError> {
        let peer = self.endpoint.insert(address);
        self.peer = Some(peer.ok_or(OfiError::BadName("the provider refuses its address"))?);
        Ok(())
    }

    /// The buffer that is sent next. Empty while all are under way: poll then.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.next = self.next.or_else(|| self.free.pop());
        match self.next {
            Some(slot) => self.endpoint.buffer_mut(slot),
            None => &mut [],
        }
    }

    /// Sends the first `bytes` of [`buffer`](Self::buffer). False when there is no room now: poll, then try again.
    ///
    /// # Errors
    /// There is no peer, or a send has failed.
    pub fn send(&mut self, bytes: usize) -> Result<bool, OfiError> {
        let peer = self.peer.ok_or(OfiError::BadName("no peer"))?;
        self.check()?;
        let Some(slot) = self.next.or_else(|| self.free.pop()) else {
            return Ok(false);
        };
        self.next = Some(slot);
        match self.endpoint.send(slot, bytes, peer) {
            Ok(()) => {
                self.next = None;
                self.sending += 1;
                Ok(true)
            }
            Err(PostError::Again) => Ok(false),
            Err(PostError::Failed(code)) => Err(self.endpoint.error(code)),
        }
    }

    /// Whether messages are on their way, which needs this end to poll.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.sending > 0
    }

    /// Lets the library work; the next message that has come, which stays until [`release`](Self::release).
    ///
    /// # Errors
    /// A message was lost.
    pub fn poll(&mut self) -> Result<Option<&[u8]>, OfiError> {
        if self.arrived.is_empty() {
            let mut events = core::mem::take(&mut self.events);
            self.endpoint.poll(&mut events);
            for event in events.drain(..) {
                match event {
                    Event::Received(slot, bytes) => self.arrived.push_back((slot, bytes)),
                    Event::Sent(slot) => {
                        self.sending -= 1;
                        self.free.push(slot);
                    }
                    Event::ReceiveFailed(..) | Event::SendFailed(..) => self.failed = true,
                    Event::Moved(number, error) => {
                        self.failed |= error != 0;
                        if let Some(stores) = &mut self.stores {
                            stores.free.push(number);
                        }
                    }
                }
            }
            self.events = events;
            self.check()?;
        }
        let first = self.arrived.front();
        Ok(first.map(|&(slot, bytes)| &self.endpoint.buffer(slot)[..bytes]))
    }

    /// Gives the message that [`poll`](Self::poll) showed back.
    pub fn release(&mut self) {
        if let Some((slot, _)) = self.arrived.pop_front() {
            self.failed |= self.endpoint.receive(slot).is_err();
        }
    }

    fn check(&self) -> Result<(), OfiError> {
        match self.failed {
            false => Ok(()),
            true => Err(OfiError::BadName("a message was lost")),
        }
    }
}

impl Stores {
    fn new(endpoint: &Endpoint, half_bytes: usize) -> Result<Self, OfiError> {
        let half_bytes = half_bytes.next_multiple_of(4096);
        let memory = Mapping::anonymous(2 * half_bytes).map_err(|errno| endpoint.error(errno.raw_os_error()))?;
        let memory = Arc::new(memory);
        let registrar = endpoint.registrar();
        let region = registrar.register(&memory, 0, half_bytes, RemoteRights::NONE)?;
        let target = registrar.register(&memory, half_bytes, half_bytes, RemoteRights::ALL)?;
        Ok(Self { memory, half_bytes, region: Arc::new(region), target, peers: None, free: (0..OPERATIONS).collect() })
    }
}
