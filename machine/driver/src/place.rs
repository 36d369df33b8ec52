//! Where a thread runs the driver.

/// Where a thread is that works on a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a call of the program.
    Program,
    /// In the page-fault handler: no handler of the program runs, and nothing allocates or frees.
    FaultHandler,
}
