//! What happens, and where.

use super::engine::Then;

/// Something that happens at a node.
#[derive(Debug)]
pub(super) enum Event {
    /// The NIC's processor ends a step of this plan, or looks for a job.
    Nic {
        node: usize,
        plan: u64,
    },
    /// The DMA engine has transferred.
    Engine(usize),
    /// A packet begins to come.
    Comes(usize),
    Sent(usize),
    Arrive(usize),
    /// A processor of the host is done with what a thread wanted.
    Host {
        node: usize,
        at: usize,
        change: u64,
    },
    /// The handler of a host begins.
    Handler(usize),
    Program(usize),
    /// A link's time has come.
    Timer(usize),
    /// What the DMA engine moved is there.
    Late(usize, Box<Then>),
    /// Something about packets that are dropped.
    Link(LinkEvent),
}

/// Something that happens on the way from a node to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkEvent {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) what: Happens,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Happens {
    /// The sender learns that all before this number were taken.
    Acked(u64),
    /// A request for packets from this number on has come to the sender.
    Asked(u64),
    /// The sender's time is over, if this is still its plan.
    TimedOut(u32),
}
