//! Calls that are the NIC's, which a node hands on.

use alloc::boxed::Box;

use mapwire_nic::{Dma, NicError, RefusedStores};
use mapwire_translation::{HostRequest, TranslationDesign};
use mapwire_wire::{CommandHeader, CommandRepr, ImportId, NodeId, ProcessId};

use super::Node;

/// Each by the method of the NIC that is named.
macro_rules! by_nic {
    ($($(#[$about:meta])* fn $name:ident = $of:ident(&$($this:ident)+ $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)*) => {
        impl<D: TranslationDesign> Node<D> {
            $($(#[$about])* #[inline] pub fn $name(&$($this)+ $(, $argument: $kind)*) $(-> $result)? {
                by_nic!(@nic $($this)+).$of($($argument),*)
            })*
        }
    };
    (@nic mut $this:ident) => { $this.nic };
    (@nic $this:ident) => { $this.nic };
}

by_nic! {
    /// Whether the NIC takes a command of the process now: if not, the command waits in its queue.
    #[must_use]
    fn accepts_command = accepts_command(&self, process: ProcessId) -> bool;
    /// Takes a command that a process has written into its queue: as little trusted as what comes from a peer.
    fn handle_command = handle_command(&mut self, process: ProcessId, header: &CommandHeader, inline: &[u8]);
    /// Takes a command of a process that the caller has made itself. See [`Nic::handle_own_command`](mapwire_nic::Nic::handle_own_command).
    fn handle_own_command = handle_own_command(&mut self, process: ProcessId, command: &CommandRepr, inline: &[u8]);
    /// The next move of memory, to be done in this order.
    fn poll_move = poll_dma(&mut self) -> Option<Dma>;
    /// A move is done. `old` is what the word held that it updated, if it updated one.
    fn handle_moved = handle_dma_done(&mut self, dma: &Dma, old: u64);
    /// The packet that [`poll_transmit`](Self::poll_transmit) gave for `to` is out, and its source read.
    fn handle_transmitted = handle_transmitted(&mut self, to: NodeId);
    /// Whether the NIC waits for the host.
    #[must_use]
    fn has_misses = has_misses(&self) -> bool;
    /// What the NIC asks of the host, oldest first.
    fn misses = misses(&self) -> impl Iterator<Item = &HostRequest>;
    /// Packets to `node` and from it are not lost: see [`Nic::set_lossless`](mapwire_nic::Nic::set_lossless).
    fn set_lossless = set_lossless(&mut self, node: NodeId);
    /// Packets to `node` carry at most `bytes` of a transfer: see [`Nic::set_max_payload`](mapwire_nic::Nic::set_max_payload).
    fn set_max_payload = set_max_payload(&mut self, node: NodeId, bytes: usize);
    /// Makes room for what packets of `node` may leave behind, so that taking them allocates nothing.
    fn make_room = make_room(&mut self, node: NodeId);
    /// Whether nothing that was sent or asked waits to go to `node`.
    #[must_use]
    fn idle_towards = idle_towards(&self, node: NodeId) -> bool;
    /// Whether stores to `node` have not arrived: see [`Nic::owes_stores`](mapwire_nic::Nic::owes_stores).
    #[must_use]
    fn owes_stores = owes_stores(&self, node: NodeId) -> bool;
    /// The program has been told that `node` is gone: see [`Nic::note_told`](mapwire_nic::Nic::note_told).
    fn note_told = note_told(&mut self, node: NodeId);
    /// Whether a node takes requests. One that is asked all the same, over and over, counts as gone when a message to it is lost.
    #[must_use]
    fn takes_requests = has_room_for_requests(&self, from: NodeId) -> bool;
    /// What was noted of sends by an import that were dropped after their command was done; notes afresh.
    fn take_refused = take_refused(&mut self, import: ImportId) -> RefusedStores;
    /// Whether [`poll_datagram`](Self::poll_datagram) may have one.
    #[must_use]
    fn has_datagrams = has_datagrams(&self) -> bool;
    /// Makes all acks due that links owe. Whether there are any.
    fn hasten_acks = hasten_acks(&mut self) -> bool;
    /// The next packet of `from` that came before its turn, when its turn has come: its header, then its payload, for
    /// [`handle_packet`](Self::handle_packet).
    fn poll_early = poll_early(&mut self, from: NodeId) -> Option<Box<[u8]>>;
    /// Gives tables of services so many bytes of NIC memory: see [`Nic::set_service_bytes`](mapwire_nic::Nic::set_service_bytes).
    ///
    /// # Errors
    /// The NIC has not as much left.
    fn set_service_bytes = set_service_bytes(&mut self, bytes: usize) -> Result<(), NicError>;
}
