//! What each part of a node did, and when.

use super::profile::Ps;

/// A part of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The wire into the node.
    ReceiveWire,
    Nic,
    /// The NIC's DMA engine to host memory.
    HostDma,
    Host,
    /// The wire out of the node.
    SendWire,
}

impl Lane {
    /// All of them, in the order of GMS-NP Figure 5.
    pub const ALL: [Self; 5] = [Self::ReceiveWire, Self::Nic, Self::HostDma, Self::Host, Self::SendWire];

    /// Its name in that figure.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReceiveWire => "Recv Wire",
            Self::Nic => "Network P",
            Self::HostDma => "HDMA",
            Self::Host => "Host P",
            Self::SendWire => "Send Wire",
        }
    }
}

/// Something that a part of a node did without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub node: u16,
    pub lane: Lane,
    pub label: &'static str,
    pub from_ps: Ps,
    pub to_ps: Ps,
}

/// Spans in the order of their ends, while they are wanted.
#[derive(Debug, Default)]
pub struct Timeline(Option<Vec<Span>>);

impl Timeline {
    pub fn begin(&mut self) {
        self.0 = Some(Vec::new());
    }

    pub fn take(&mut self) -> Vec<Span> {
        self.0.take().unwrap_or_default()
    }

    pub(crate) fn note(&mut self, node: usize, lane: Lane, label: &'static str, span: (Ps, Ps)) {
        if let Some(spans) = &mut self.0 {
            spans.push(Span { node: node as u16, lane, label, from_ps: span.0, to_ps: span.1 });
        }
    }
}
