//! The peers of a transport, by number, and in the order in which they are polled.

use mapwire_wire::NodeId;

use crate::transport::SendError;

#[derive(Debug)]
enum Entry<T> {
    Absent,
    Connected(Box<T>),
    Gone,
}

/// What a transport knows of each connected peer.
#[derive(Debug)]
pub(crate) struct Peers<T> {
    entries: Vec<Entry<T>>,
    connected: Vec<NodeId>,
    /// Index in `connected` of the peer to be polled first.
    next: usize,
}

impl<T> Default for Peers<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), connected: Vec::new(), next: 0 }
    }
}

impl<T> Peers<T> {
    /// Adds a peer, in place of an earlier connection to it.
    pub(crate) fn connect(&mut self, id: NodeId, peer: Box<T>) {
        let index = usize::from(id.0);
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || Entry::Absent);
        }
        self.entries[index] = Entry::Connected(peer);
        if !self.connected.contains(&id) {
            self.connected.push(id);
        }
    }

    /// One more than the highest number of a peer.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Peers with a connection, in no particular order.
    pub(crate) fn connected(&self) -> &[NodeId] {
        &self.connected
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: NodeId) -> Option<&T> {
        match self.entries.get(usize::from(id.0)) {
            Some(Entry::Connected(peer)) => Some(peer),
            _ => None,
        }
    }

    /// The peer, or why nothing can be sent to it.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: NodeId) -> Result<&mut T, SendError> {
        match self.entries.get_mut(usize::from(id.0)) {
            Some(Entry::Connected(peer)) => Ok(peer),
            Some(Entry::Gone) => Err(SendError::PeerGone(id)),
            Some(Entry::Absent) | None => Err(SendError::NotConnected(id)),
        }
    }

    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &T)> {
        self.connected.iter().filter_map(|&id| Some((id, self.get(id)?)))
    }

    /// Calls `with` on each connected peer.
    pub(crate) fn for_each(&mut self, mut with: impl FnMut(&mut T)) {
        for index in 0..self.connected.len() {
            if let Ok(peer) = self.get_mut(self.connected[index]) {
                with(peer);
            }
        }
    }

    /// The next peer in turn of which `has_input` holds; an error of a peer ends the search, with the peer.
    #[inline(always)]
    pub(crate) fn poll<E>(
        &mut self,
        mut has_input: impl FnMut(&mut T) -> Result<bool, E>,
    ) -> Result<Option<NodeId>, (NodeId, E)> {
        let count = self.connected.len();
        let mut index = self.next;
        for _ in 0..count {
            if index >= count {
                index = 0;
            }
            let id = self.connected[index];
            index += 1;
            let Some(Entry::Connected(peer)) = self.entries.get_mut(usize::from(id.0)) else {
                continue;
            };
            match has_input(peer) {
                Ok(false) => {}
                Ok(true) => {
                    self.next = index;
                    return Ok(Some(id));
                }
                Err(error) => return Err((id, error)),
            }
        }
        Ok(None)
    }

    /// Takes a peer out, which counts as gone from now on.
    #[cold]
    pub(crate) fn forget(&mut self, id: NodeId) -> Option<Box<T>> {
        let entry = self.entries.get_mut(usize::from(id.0)).filter(|entry| matches!(entry, Entry::Connected(_)))?;
        let Entry::Connected(peer) = core::mem::replace(entry, Entry::Gone) else {
            return None;
        };
        self.connected.retain(|&other| other != id);
        self.next = 0;
        Some(peer)
    }
}
