//! The services of a process, by handler id.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;

use mapwire_nic::NicError;
use mapwire_vmmc::service::Service;
use mapwire_wire::{HandlerId, ProcessId};
use thiserror::Error;

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

#[derive(Debug)]
struct Registered {
    handler: HandlerId,
    service: Box<dyn Service>,
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
    pub(crate) fn get_mut(&mut self, handler: HandlerId) -> Option<&mut dyn Service> {
        self.calls += 1;
        let found = self.services.iter_mut().find(|registered| registered.handler == handler)?;
        Some(&mut *found.service)
    }

    #[inline]
    pub(crate) fn get(&self, handler: HandlerId) -> Option<&dyn Service> {
        let found = self.services.iter().find(|registered| registered.handler == handler)?;
        Some(&*found.service)
    }

    /// The service under this id, if it is a `T`.
    #[inline]
    pub(crate) fn of_type<T: Service>(&self, handler: HandlerId) -> Option<&T> {
        (self.get(handler)? as &dyn Any).downcast_ref()
    }

    #[inline]
    pub(crate) fn of_type_mut<T: Service>(&mut self, handler: HandlerId) -> Option<&mut T> {
        (self.get_mut(handler)? as &mut dyn Any).downcast_mut()
    }

    pub(crate) fn insert(&mut self, handler: HandlerId, service: Box<dyn Service>) -> bool {
        let is_free = self.get(handler).is_none();
        if is_free {
            self.services.push(Registered { handler, service });
            self.calls += 1;
        }
        is_free
    }

    pub(crate) fn remove(&mut self, handler: HandlerId) -> Option<Box<dyn Service>> {
        let mut services = self.services.iter();
        let at = services.position(|other| other.handler == handler)?;
        self.calls += 1;
        Some(self.services.remove(at).service)
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Service> {
        self.services.iter().map(|registered| &*registered.service)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (HandlerId, &mut dyn Service)> {
        self.calls += 1;
        self.services.iter_mut().map(|registered| (registered.handler, &mut *registered.service))
    }
}
