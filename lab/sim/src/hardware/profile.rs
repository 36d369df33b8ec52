//! What steps of a machine cost: a table of constants, each with its origin and source.

/// Picoseconds.
pub type Ps = u64;

/// Picoseconds of a microsecond.
pub const US: Ps = 1_000_000;

/// What a constant is the cost of. Times are picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// NIC processor: takes a message in for the host, from its arrival to the interrupt.
    NicReceive,
    /// NIC processor: looks at the handler id of a message that came (only where directories are on NICs).
    NicDispatch,
    /// NIC processor: decodes a directory operation and readies its first DMA.
    NicDecode,
    /// NIC processor: what a lookup takes besides its entries.
    NicLookup,
    /// NIC processor: compares an entry, while no DMA is active.
    NicScan,
    /// The same, while one DMA is active. The ratio of both is how much a DMA slows the processor.
    NicScanInDma,
    /// NIC processor: makes an outgoing message ready, while no DMA is active.
    NicPrepare,
    /// The same, while one DMA is active throughout.
    NicPrepareInDma,
    /// NIC processor: changes an entry that it found.
    NicModify,
    /// NIC processor: programs a transfer between host memory and NIC memory.
    DmaSetup,
    /// From there to the first byte, when host memory is read.
    DmaLatency,
    /// Transfer of 32 bytes between host memory and NIC memory.
    DmaBlock,
    /// How much later a read of host memory begins when a program uses that memory heavily.
    BusWaitActive,
    /// The same, when every line that is read must be fetched from a memory in heavy use.
    BusWaitCold,
    /// A byte on a wire.
    WireByte,
    /// Wires and switches between two nodes.
    WireLatency,
    /// Bytes that are sent on as soon as they are there, when a page is sent.
    PulseBytes,
    /// Bytes of a message besides what the protocol says.
    HeaderBytes,
    /// Host: from an interrupt to its handler.
    HostInterrupt,
    /// Host: handles a message: driver, one entry of the directory or one page looked up, the answer handed to the NIC.
    HostHandler,
    /// Host: what the handler does after that, up to the interrupted program.
    HostReturn,
    /// Host: compares one more entry.
    HostScan,
    /// Host: cache misses of interrupt and handler, when nothing of them is in the caches.
    HostCold,
    /// A program that uses memory heavily throws half of the handler out of the caches in this time.
    CacheHalfLife,
    /// Host of the requesting node: global memory's work before the request is sent.
    HostRequest,
    /// Host of the storing node: global memory's work before the page is sent.
    HostServe,
    /// Host of the requesting node: the page fault around a getpage.
    HostFault,

    // Shared memory between hosts.
    /// Host: from an access that is not allowed to the handler of the fault, and back.
    AccessFault,
    /// Host: a look at what may be done with a minipage, once a fault.
    ReadProtection,
    /// Host: changes the protection of a minipage's pages.
    SetProtection,
    /// Host: the manager of a minipage looks it up.
    LookupMinipage,
    /// Host: what a message about a minipage takes besides.
    HandleRequest,
    /// Host: what a message of a lock, a barrier or the allocator takes.
    HandleSync,
    /// Host: a call of the program, besides what follows from it.
    LocalCall,
    /// Host: sends a message.
    SendMessage,
    /// Host: a byte that is sent.
    SendByte,
    /// Host: receives a message.
    ReceiveMessage,
    /// Host: a byte that is received.
    ReceiveByte,
    /// Host: tells a thread of its own that what it waits for is there, or another host's that a message has come.
    Signal,
    /// From a signal or an interrupt to the thread being ready to run.
    WakeDelay,
    /// Host: a processor goes over to another thread.
    ThreadSwitch,
    /// How long threads of one priority run at a time.
    ThreadTurn,
    /// From one look of the polling thread of high priority to the next.
    PollPeriod,
    /// Host: that look, when nothing has come.
    PollNothing,
    /// How long a thread that waits polls before it sleeps.
    Spin,
}

/// How a constant came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The source states it.
    Input,
    /// Calculated from figures that the source states; those are no predictions any more.
    Derived,
    /// Not known: chosen, and shown to matter little or varied.
    Assumed,
}

impl Origin {
    /// One word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Derived => "derived",
            Self::Assumed => "assumed",
        }
    }
}

/// One constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// What it is the cost of.
    pub cost: Cost,
    /// Picoseconds, or bytes.
    pub value: u64,
    /// How it came about.
    pub origin: Origin,
    /// Where it stands, or how it was calculated.
    pub source: &'static str,
}

impl Cost {
    /// Whether the value is a number of bytes rather than a time.
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::PulseBytes | Self::HeaderBytes)
    }
}

/// A machine's constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What is shown of it.
    pub name: &'static str,
    /// Bytes of NIC memory that a directory may take.
    pub nic_table_bytes: usize,
    constants: Vec<Constant>,
}

impl Profile {
    /// A profile of these constants. What is not among them costs nothing.
    #[must_use]
    pub fn new(name: &'static str, nic_table_bytes: usize, constants: &[Constant]) -> Self {
        Self {
            name,
            nic_table_bytes,
            constants: constants.to_vec(),
        }
    }

    /// All constants.
    #[must_use]
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// A constant.
    #[must_use]
    pub fn of(&self, cost: Cost) -> u64 {
        let found = self.constants.iter().find(|row| row.cost == cost);
        found.map_or(0, |row| row.value)
    }

    /// The same machine with another value of a constant.
    #[must_use]
    pub fn with(mut self, cost: Cost, value: u64) -> Self {
        for row in self.constants.iter_mut().filter(|row| row.cost == cost) {
            row.value = value;
        }
        self
    }

    /// How long so many bytes take between host memory and NIC memory, setup excluded.
    #[must_use]
    pub fn dma(&self, bytes: u64) -> Ps {
        bytes.div_ceil(32) * self.of(Cost::DmaBlock)
    }

    /// How long so many bytes take on a wire.
    #[must_use]
    pub fn wire(&self, bytes: u64) -> Ps {
        bytes * self.of(Cost::WireByte)
    }
}
