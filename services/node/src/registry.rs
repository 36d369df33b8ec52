//! The services of a process, by handler id.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;

use mapwire_nic::NicError;
use mapwire_vmmc::service::{Action, Broken, Service};
use mapwire_wire::{Endpoint, HandlerId, NodeId, ProcessId};
use thiserror::Error;

use crate::shared_memory::SharedMemory;

/// Why a service is not registered.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// The process has another under this id.
    #[error("{0} has a service already; choose another handler id")]
    Taken(HandlerId),
    /// Control messages and notices of the node have it.
    #[error("{0} is the node's own; choose another handler id")]
    Reserved(HandlerId),
    /// The process is not open.
    #[error("{0} is not open at this node")]
    NoProcess(ProcessId),
    /// The NIC's dispatch table.
    #[error(transparent)]
    Nic(#[from] NicError),
}

/// A service. Programs wait for the shared memory at each fault and barrier: it is called without a look into a table.
#[derive(Debug)]
pub(crate) enum Held {
    Shared(Box<SharedMemory>),
    Other(Box<dyn Service>),
}

impl Held {
    fn new(service: Box<dyn Service>) -> Self {
        let any: &dyn Any = &*service;
        if !any.is::<SharedMemory>() {
            return Self::Other(service);
        }
        let any: Box<dyn Any> = service;
        match any.downcast() {
            Ok(shared) => Self::Shared(shared),
            Err(_) => unreachable!("it is one"),
        }
    }

    fn into_service(self) -> Box<dyn Service> {
        match self {
            Self::Shared(shared) => shared,
            Self::Other(service) => service,
        }
    }

    #[inline]
    fn of_type<T: Service>(&self) -> Option<&T> {
        // Each in its own branch: what it is of is known there when it is compiled.
        match self {
            Self::Shared(shared) => (&**shared as &dyn Any).downcast_ref(),
            Self::Other(service) => (&**service as &dyn Any).downcast_ref(),
        }
    }

    #[inline]
    fn of_type_mut<T: Service>(&mut self) -> Option<&mut T> {
        match self {
            Self::Shared(shared) => (&mut **shared as &mut dyn Any).downcast_mut(),
            Self::Other(service) => (&mut **service as &mut dyn Any).downcast_mut(),
        }
    }
}

/// Calls whichever service it is.
macro_rules! each {
    ($held:expr, $service:ident => $call:expr) => {
        match $held {
            Held::Shared($service) => $call,
            Held::Other($service) => $call,
        }
    };
}

impl Service for Held {
    #[inline]
    fn handle_message(&mut self, now_ns: u64, from: Endpoint, message: &[u8]) -> Result<(), Broken> {
        each!(self, service => service.handle_message(now_ns, from, message))
    }

    fn handle_peer_gone(&mut self, now_ns: u64, node: NodeId) {
        each!(self, service => service.handle_peer_gone(now_ns, node));
    }

    fn handle_lost(&mut self, to: Endpoint) {
        each!(self, service => service.handle_lost(to));
    }

    fn handle_time(&mut self, now_ns: u64) {
        each!(self, service => service.handle_time(now_ns));
    }

    #[inline]
    fn has_actions(&self) -> bool {
        each!(self, service => service.has_actions())
    }

    #[inline]
    fn poll_action(&mut self) -> Option<Action<'_>> {
        each!(self, service => service.poll_action())
    }

    #[inline]
    fn poll_meeting(&mut self) -> Option<Endpoint> {
        each!(self, service => service.poll_meeting())
    }

    #[inline]
    fn poll_at(&self) -> Option<u64> {
        each!(self, service => service.poll_at())
    }

    #[inline]
    fn needs_time(&self, message: &[u8]) -> bool {
        each!(self, service => service.needs_time(message))
    }

    #[inline]
    fn runs_on_host(&self, message: &[u8]) -> bool {
        each!(self, service => service.runs_on_host(message))
    }

    #[inline]
    fn allocates_nothing(&self) -> bool {
        each!(self, service => service.allocates_nothing())
    }
}

#[derive(Debug)]
struct Registered {
    handler: HandlerId,
    service: Held,
}

/// Those of a process. There are few.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    services: Vec<Registered>,
    /// How often one of them was called, came or went.
    calls: u64,
}

impl Registry {
    /// Goes up whenever a service may change. While it stands still, none has.
    #[inline]
    pub(crate) const fn calls(&self) -> u64 {
        self.calls
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handler: HandlerId) -> Option<&mut Held> {
        self.calls += 1;
        let found = self.services.iter_mut().find(|registered| registered.handler == handler)?;
        Some(&mut found.service)
    }

    #[inline]
    pub(crate) fn get(&self, handler: HandlerId) -> Option<&Held> {
        let found = self.services.iter().find(|registered| registered.handler == handler)?;
        Some(&found.service)
    }

    /// The service under this id, if it is a `T`.
    #[inline]
    pub(crate) fn of_type<T: Service>(&self, handler: HandlerId) -> Option<&T> {
        self.get(handler)?.of_type()
    }

    #[inline]
    pub(crate) fn of_type_mut<T: Service>(&mut self, handler: HandlerId) -> Option<&mut T> {
        self.get_mut(handler)?.of_type_mut()
    }

    pub(crate) fn insert(&mut self, handler: HandlerId, service: Box<dyn Service>) -> bool {
        let is_free = self.get(handler).is_none();
        if is_free {
            let service = Held::new(service);
            self.services.push(Registered { handler, service });
            self.calls += 1;
        }
        is_free
    }

    pub(crate) fn remove(&mut self, handler: HandlerId) -> Option<Box<dyn Service>> {
        let mut services = self.services.iter();
        let at = services.position(|other| other.handler == handler)?;
        self.calls += 1;
        Some(self.services.remove(at).service.into_service())
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.services.iter().map(|registered| &registered.service)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (HandlerId, &mut Held)> {
        self.calls += 1;
        self.services.iter_mut().map(|registered| (registered.handler, &mut registered.service))
    }
}
