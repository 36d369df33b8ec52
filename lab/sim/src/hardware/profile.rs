//! What steps of a machine cost: a table of constants, each with its origin and source.

/// Picoseconds.
pub type Ps = u64;

/// Picoseconds of a nanosecond.
pub const NS: Ps = 1_000;

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
    /// Host: what a call that waits at a barrier takes more.
    BarrierCall,
    /// Host: sends a message.
    SendMessage,
    /// Host: a byte that is sent.
    SendByte,
    /// Host: receives a message.
    ReceiveMessage,
    /// Host: a byte that is received.
    ReceiveByte,
    /// Host: a byte of a minipage that is brought from where the network left it to its place.
    PlaceByte,
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

    // What computers cost whose NIC runs VMMC: see `computers`.
    /// Host: writes a word of NIC memory.
    HostWrite,
    /// Host: what the library does before it writes a command.
    HostPost,
    /// Words of a command besides its data; a short one has a word less, as it names no source.
    CommandWords,
    /// Host: sees that a word which it watches has changed.
    HostNotice,
    /// Host: the library checks whether the pages of a transfer are pinned.
    HostCheck,
    /// Host: copies a byte of memory.
    HostCopyByte,
    /// Host: a call that pins a page.
    HostPin1,
    /// Host: a call that pins 2 pages.
    HostPin2,
    /// Host: a call that pins 4 pages.
    HostPin4,
    /// Host: a call that pins 8 pages.
    HostPin8,
    /// Host: a call that pins 16 pages.
    HostPin16,
    /// Host: a call that pins 32 pages.
    HostPin32,
    /// Host: a call that unpins a page.
    HostUnpin1,
    /// Host: pins a page, or the first of several, while it serves the NIC.
    HostPinServing,
    /// Host: unpins a page while it serves the NIC.
    HostUnpinServing,
    /// NIC processor: goes once around its main loop, and scans the command queues.
    NicLoop,
    /// NIC processor: takes a command out of its queue.
    NicPickUp,
    /// NIC processor: prepares the header of a packet.
    NicHeader,
    /// NIC processor: starts the network DMA of a packet.
    NicStartNetwork,
    /// NIC processor: takes a packet that came, up to where its data go.
    NicTakePacket,
    /// NIC processor: copies a word within its memory.
    NicCopyWord,
    /// NIC processor: translates a page of a source, or of the destination of a fetch.
    NicTranslate,
    /// NIC processor: translates a page of an export.
    NicTranslateReceive,
    /// NIC processor: what a miss that reads a table in host memory takes besides the DMA.
    NicMiss,
    /// NIC processor: what such a miss takes besides for each entry behind the first.
    NicMissEntry,
    /// NIC processor: percent of its speed that it loses while one DMA is active.
    NicSlowedByDma,
    /// NIC processor: percent of its speed that it loses while both a wire and the host are transferred.
    NicSlowedByTwo,
    /// A transfer of 4 bytes between host memory and NIC memory, `DmaSetup` included.
    HostDma4,
    /// The same of 8 bytes.
    HostDma8,
    /// The same of 16 bytes.
    HostDma16,
    /// The same of 32 bytes.
    HostDma32,
    /// The same of 64 bytes.
    HostDma64,
    /// The same of 128 bytes.
    HostDma128,
    /// The same of 4 KB.
    HostDma4K,
    /// The same of 64 KB.
    HostDma64K,

    // Where misses of translations are served by a thread of the host, and drop what missed.
    /// The least time from a miss to the thread that serves it.
    MissDelayLeast,
    /// The most time.
    MissDelayMost,
    /// The least time that this thread takes.
    MissProcessingLeast,
    /// The most time.
    MissProcessingMost,
    /// In so many percent of misses all times between are as likely; in the others short times are as likely as long ones.
    MissProcessingEven,
    /// How long a sender waits for an ack before it sends again.
    LinkTimeout,
    /// Bytes that a link has under way without an ack at most.
    LinkWindow,

    // Where a bus has many transfers under way: see `DmaLatency` for reads.
    /// From the end of a write of host memory to where its processors see it.
    DmaStoreLatency,
}

/// What the value of a constant counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Picoseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Words of four bytes.
    Words,
    /// Percent.
    Percent,
}

/// How a constant came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The source states it.
    Input,
    /// Calculated from figures that the source states; those are no predictions any more.
    Derived,
    /// Chosen so that a run gives a figure that the source states; that figure is no prediction any more.
    Fitted,
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
            Self::Fitted => "fitted",
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

/// A row of a table of constants.
pub(crate) const fn is(cost: Cost, value: u64, origin: Origin, source: &'static str) -> Constant {
    Constant { cost, value, origin, source }
}

impl Cost {
    /// What its value counts.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::PulseBytes | Self::HeaderBytes | Self::LinkWindow => Unit::Bytes,
            Self::CommandWords => Unit::Words,
            Self::NicSlowedByDma | Self::NicSlowedByTwo | Self::MissProcessingEven => Unit::Percent,
            _ => Unit::Time,
        }
    }
}

/// Bytes of the transfers that `HostDma` constants state.
const HOST_DMA: &[(u64, Cost)] = &[
    (4, Cost::HostDma4),
    (8, Cost::HostDma8),
    (16, Cost::HostDma16),
    (32, Cost::HostDma32),
    (64, Cost::HostDma64),
    (128, Cost::HostDma128),
    (4 << 10, Cost::HostDma4K),
    (64 << 10, Cost::HostDma64K),
];

/// Pages of the calls that `HostPin` constants state.
const HOST_PIN: &[(u64, Cost)] = &[
    (1, Cost::HostPin1),
    (2, Cost::HostPin2),
    (4, Cost::HostPin4),
    (8, Cost::HostPin8),
    (16, Cost::HostPin16),
    (32, Cost::HostPin32),
];

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
        Self { name, nic_table_bytes, constants: constants.to_vec() }
    }

    /// The same machine with more constants, under another name.
    #[must_use]
    pub fn and(mut self, name: &'static str, constants: &[Constant]) -> Self {
        self.name = name;
        self.constants.extend_from_slice(constants);
        self
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

    /// A cost of so many bytes, pages or whatever `points` count: on the straight line between the two nearest of them that the profile
    /// states, before the first and behind the last as between the nearest two, and never less than nothing.
    #[must_use]
    pub fn along(&self, points: &[(u64, Cost)], at: u64) -> Ps {
        let stated = |&(x, cost): &(u64, Cost)| Some((x, self.of(cost))).filter(|point| point.1 > 0);
        let mut stated = points.iter().filter_map(stated);
        let Some(mut low) = stated.next() else {
            return 0;
        };
        let Some(mut high) = stated.next() else {
            return low.1;
        };
        for next in stated {
            if high.0 >= at {
                break;
            }
            (low, high) = (high, next);
        }
        let signed = |value: u64| i128::from(value);
        let rise = signed(high.1) - signed(low.1);
        let run = signed(high.0) - signed(low.0);
        let value = signed(low.1) + rise * (signed(at) - signed(low.0)) / run.max(1);
        u64::try_from(value).unwrap_or(0)
    }

    /// How long a transfer of so many bytes between host memory and NIC memory takes by the `HostDma` constants, `DmaSetup` included.
    #[must_use]
    pub fn host_dma(&self, bytes: u64) -> Ps {
        self.along(HOST_DMA, bytes.max(4))
    }

    /// How long a call takes that pins so many pages.
    #[must_use]
    pub fn pin(&self, pages: u64) -> Ps {
        self.along(HOST_PIN, pages)
    }

    /// How long so many bytes take on a wire.
    #[must_use]
    pub fn wire(&self, bytes: u64) -> Ps {
        bytes * self.of(Cost::WireByte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_lie_on_the_lines_between_what_is_stated() {
        let is = |cost, value| Constant { cost, value, origin: Origin::Assumed, source: "test" };
        let constants = [is(Cost::HostPin1, 100), is(Cost::HostPin4, 160)];
        let profile = Profile::new("test", 0, &constants);
        let pins = [1, 2, 4, 6].map(|pages| profile.pin(pages));
        assert_eq!(pins, [100, 120, 160, 200]);
        assert_eq!(profile.host_dma(4096), 0, "nothing is stated");
    }
}
