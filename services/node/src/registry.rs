//! The services of a process, by handler id.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;

use mapwire_nic::NicError;
use mapwire_service::Service;
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

/// One service.
#[derive(Debug)]
struct Registered {
    handler: HandlerId,
    service: Box<dyn Service>,
}

/// Those of a process. There are few.
#[derive(Debug, Default)]
pub(crate) struct Registry(Vec<Registered>);

impl Registry {
    #[inline]
    pub(crate) fn get_mut(&mut self, handler: HandlerId) -> Option<&mut dyn Service> {
        let mut services = self.0.iter_mut();
        let found = services.find(|registered| registered.handler == handler)?;
        Some(&mut *found.service)
    }

    #[inline]
    pub(crate) fn get(&self, handler: HandlerId) -> Option<&dyn Service> {
        let mut services = self.0.iter();
        let found = services.find(|registered| registered.handler == handler)?;
        Some(&*found.service)
    }

    /// The service under this id, if it is a `T`.
    #[inline]
    pub(crate) fn of_type<T: Service>(&self, handler: HandlerId) -> Option<&T> {
        let service: &dyn Any = self.get(handler)?;
        service.downcast_ref()
    }

    /// As [`of_type`](Self::of_type), to be changed.
    #[inline]
    pub(crate) fn of_type_mut<T: Service>(&mut self, handler: HandlerId) -> Option<&mut T> {
        let service: &mut dyn Any = self.get_mut(handler)?;
        service.downcast_mut()
    }

    pub(crate) fn insert(&mut self, handler: HandlerId, service: Box<dyn Service>) -> bool {
        let is_free = self.get(handler).is_none();
        if is_free {
            self.0.push(Registered { handler, service });
        }
        is_free
    }

    pub(crate) fn remove(&mut self, handler: HandlerId) -> Option<Box<dyn Service>> {
        let at = self.0.iter().position(|other| other.handler == handler)?;
        Some(self.0.remove(at).service)
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Service> {
        self.0.iter().map(|registered| &*registered.service)
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (HandlerId, &mut dyn Service)> {
        self.0
            .iter_mut()
            .map(|registered| (registered.handler, &mut *registered.service))
    }
}
