//! What programs may be asked to do, and when.

/// One call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub at_ns: u64,
    /// The process, counted over all nodes.
    pub process: u32,
    /// Draws what it is and how it goes.
    pub seed: u64,
    /// What it is, if that is not drawn.
    pub deed: Option<Deed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Export,
    /// Import one of a neighbour.
    Import,
    /// Send so many bytes of memory that begins so far behind the start of a page.
    Send {
        length: u64,
        /// Bytes behind the start of a page, a multiple of 8.
        shift: u64,
    },
    /// Fetch so many bytes to memory that begins so far behind the start of a page.
    Fetch {
        length: u64,
        /// Bytes behind the start of a page, a multiple of 8.
        shift: u64,
    },
}
