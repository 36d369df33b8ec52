//! Memory that peers pass for imports under way, and imports that are given up.

use std::os::fd::OwnedFd;

use mapwire_host::memory::MappedBuffer;
use mapwire_node::Node;
use mapwire_translation::AnyDesign;
use mapwire_vmmc::{Grant, RequestId};
use mapwire_wire::{ImportId, NodeId};

use super::Memories;
use super::records::{GivenUp, REQUEST, STATUS_TAG};
use crate::commands::CommandQueue;

use crate::error::DriverError;
use crate::ids::PROCESS;
use crate::imports;

impl Memories {
    /// Keeps memory that an import under way waits for, and says which. What nobody asked for is closed, so that no peer can use up this
    /// process's descriptors.
    pub(crate) fn take_passed(
        &mut self,
        node: &Node<AnyDesign>,
        from: NodeId,
        tag: u64,
        fd: Option<OwnedFd>,
    ) -> Option<RequestId> {
        // The rest of the tag is its passer's.
        let request = RequestId((tag & REQUEST) as u32);
        if !node.awaits_memory(PROCESS, from, request) {
            return None;
        }
        self.passed.entry(tag & (STATUS_TAG | REQUEST)).or_insert((from, fd));
        Some(request)
    }

    /// Closes what a peer has passed for an import.
    pub(crate) fn drop_passed(&mut self, request: RequestId) {
        let tag = u64::from(request.0);
        self.passed.remove(&tag);
        self.passed.remove(&(tag | STATUS_TAG));
    }

    /// Closes what peers have passed that are gone.
    pub(crate) fn drop_passed_of(&mut self, is_gone: impl Fn(NodeId) -> bool) {
        self.passed.retain(|_, (from, _)| !is_gone(*from));
    }

    /// The mapped memory of an import, once it and its status have been passed.
    pub(crate) fn map_passed(
        &mut self,
        request: RequestId,
        grant: &Grant,
    ) -> Option<Result<MappedBuffer, DriverError>> {
        let tags = [u64::from(request.0), u64::from(request.0) | STATUS_TAG];
        if !tags.iter().all(|tag| self.passed.contains_key(tag)) {
            return None;
        }
        let [memory, status] = tags.map(|tag| self.passed.remove(&tag));
        let ((peer, memory), (_, status)) = (memory?, status?);
        let Some(passed) = memory.zip(status) else {
            return Some(Err(DriverError::NoDescriptor(peer)));
        };
        let mapped = imports::map(grant, &passed);
        if let Ok(mapped) = &mapped {
            self.stored_in_place.watch(mapped.stored_bytes());
        }
        Some(mapped)
    }

    /// Gives an import up, and tells the exporter, when the commands that wait, which may use it, have been read.
    pub(crate) fn give_up(&mut self, queue: &CommandQueue, id: ImportId, grant: &Grant) {
        self.given_up.push_back(GivenUp { behind: queue.written(), id, grant: *grant });
    }

    /// Gives up the imports that waited for commands. Whether there were any.
    #[inline]
    pub(crate) fn release_given_up(&mut self, node: &mut Node<AnyDesign>, queue: &CommandQueue) -> bool {
        !self.given_up.is_empty() && self.release_read(node, queue)
    }

    #[cold]
    fn release_read(&mut self, node: &mut Node<AnyDesign>, queue: &CommandQueue) -> bool {
        let mut any = false;
        while let Some(&GivenUp { behind, id, grant }) = self.given_up.front()
            && queue.has_read(behind)
        {
            any = true;
            self.given_up.pop_front();
            node.release_import(PROCESS, id, &grant);
        }
        any
    }
}
