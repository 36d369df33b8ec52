//! What steps of a machine cost: a table of constants, each with its origin and source.

/// Picoseconds.
pub type Ps = u64;

/// Picoseconds of a nanosecond.
pub const NS: Ps = 1_000;

/// Picoseconds of a microsecond.
pub const US: Ps = 1_000_000;

/// Costs, a row a line: the name, the unit if it is not time, and what it is the cost of.
macro_rules! costs {
    ($($name:ident $([$unit:ident])?: $about:literal;)*) => {
        /// What a constant is the cost of. Times are picoseconds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Cost {
            $(#[doc = $about] $name,)*
        }

        impl Cost {
            pub const fn unit(self) -> Unit {
                match self {
                    $($(Self::$name => Unit::$unit,)?)*
                    _ => Unit::Time,
                }
            }
        }
    };
}

costs! {
    NicReceive: "NIC processor: takes a message in for the host, from its arrival to the interrupt.";
    NicDispatch: "NIC processor: looks at the handler id of a message that came (only where directories are on NICs).";
    NicDecode: "NIC processor: decodes a directory operation and readies its first DMA.";
    NicLookup: "NIC processor: what a lookup takes besides its entries.";
    NicScan: "NIC processor: compares an entry, while no DMA is active.";
    NicScanInDma: "The same, while one DMA is active. The ratio of both is how much a DMA slows the processor.";
    NicPrepare: "NIC processor: makes an outgoing message ready, while no DMA is active.";
    NicPrepareInDma: "The same, while one DMA is active throughout.";
    NicModify: "NIC processor: changes an entry that it found.";
    DmaSetup: "NIC processor: programs a transfer between host memory and NIC memory.";
    DmaLatency: "From there to the first byte, when host memory is read.";
    DmaBlock: "Transfer of 32 bytes between host memory and NIC memory.";
    BusWaitActive: "How much later a read of host memory begins when a program uses that memory heavily.";
    BusWaitCold: "The same, when every line that is read must be fetched from a memory in heavy use.";
    WireByte: "A byte on a wire.";
    WireLatency: "Wires and switches between two nodes.";
    PulseBytes [Bytes]: "Bytes that are sent on as soon as they are there, when a page is sent.";
    HeaderBytes [Bytes]: "Bytes of a message besides what the protocol says.";
    HostInterrupt: "Host: from an interrupt to its handler.";
    HostHandler: "Host: handles a message: driver, one entry of the directory or one page looked up, the answer handed to the NIC.";
    HostReturn: "Host: what the handler does after that, up to the interrupted program.";
    HostScan: "Host: compares one more entry.";
    HostCold: "Host: cache misses of interrupt and handler, when nothing of them is in the caches.";
    CacheHalfLife: "A program that uses memory heavily throws half of the handler out of the caches in this time.";
    HostRequest: "Host of the requesting node: global memory's work before the request is sent.";
    HostServe: "Host of the storing node: global memory's work before the page is sent.";
    HostFault: "Host of the requesting node: the page fault around a getpage.";
    // Shared memory between hosts.
    AccessFault: "Host: from an access that is not allowed to the handler of the fault, and back.";
    ReadProtection: "Host: a look at what may be done with a minipage, once a fault.";
    SetProtection: "Host: changes the protection of a minipage's pages.";
    LookupMinipage: "Host: the manager of a minipage looks it up.";
    HandleRequest: "Host: what a message about a minipage takes besides.";
    HandleSync: "Host: what a message of a lock, a barrier or the allocator takes.";
    LocalCall: "Host: a call of the program, besides what follows from it.";
    BarrierCall: "Host: what a call that waits at a barrier takes more.";
    SendMessage: "Host: sends a message.";
    SendByte: "Host: a byte that is sent.";
    ReceiveMessage: "Host: receives a message.";
    ReceiveByte: "Host: a byte that is received.";
    PlaceByte: "Host: a byte of a minipage that is brought from where the network left it to its place.";
    Signal: "Host: tells a thread of its own that what it waits for is there, or another host's that a message has come.";
    WakeDelay: "From a signal or an interrupt to the thread being ready to run.";
    ThreadSwitch: "Host: a processor goes over to another thread.";
    ThreadTurn: "How long threads of one priority run at a time.";
    PollPeriod: "From one look of the polling thread of high priority to the next.";
    PollNothing: "Host: that look, when nothing has come.";
    Spin: "How long a thread that waits polls before it sleeps.";
    // What computers cost whose NIC runs VMMC: see `computers`.
    HostWrite: "Host: writes a word of NIC memory.";
    HostPost: "Host: what the library does before it writes a command.";
    CommandWords [Words]: "Words of a command besides its data; a short one has a word less, as it names no source.";
    HostNotice: "Host: sees that a word which it watches has changed.";
    HostCheck: "Host: the library checks whether the pages of a transfer are pinned.";
    HostCopyByte: "Host: copies a byte of memory.";
    HostPin1: "Host: a call that pins a page.";
    HostPin2: "Host: a call that pins 2 pages.";
    HostPin4: "Host: a call that pins 4 pages.";
    HostPin8: "Host: a call that pins 8 pages.";
    HostPin16: "Host: a call that pins 16 pages.";
    HostPin32: "Host: a call that pins 32 pages.";
    HostUnpin1: "Host: a call that unpins a page.";
    HostPinServing: "Host: pins a page, or the first of several, while it serves the NIC.";
    HostUnpinServing: "Host: unpins a page while it serves the NIC.";
    NicLoop: "NIC processor: goes once around its main loop, and scans the command queues.";
    NicPickUp: "NIC processor: takes a command out of its queue.";
    NicHeader: "NIC processor: prepares the header of a packet.";
    NicStartNetwork: "NIC processor: starts the network DMA of a packet.";
    NicTakePacket: "NIC processor: takes a packet that came, up to where its data go.";
    NicCopyWord: "NIC processor: copies a word within its memory.";
    NicTranslate: "NIC processor: translates a page of a source, or of the destination of a fetch.";
    NicTranslateReceive: "NIC processor: translates a page of an export.";
    NicMiss: "NIC processor: what a miss that reads a table in host memory takes besides the DMA.";
    NicMissEntry: "NIC processor: what such a miss takes besides for each entry behind the first.";
    NicSlowedByDma [Percent]: "NIC processor: percent of its speed that it loses while one DMA is active.";
    NicSlowedByTwo [Percent]: "NIC processor: percent of its speed that it loses while both a wire and the host are transferred.";
    HostDma4: "A transfer of 4 bytes between host memory and NIC memory, `DmaSetup` included.";
    HostDma8: "The same of 8 bytes.";
    HostDma16: "The same of 16 bytes.";
    HostDma32: "The same of 32 bytes.";
    HostDma64: "The same of 64 bytes.";
    HostDma128: "The same of 128 bytes.";
    HostDma4K: "The same of 4 KB.";
    HostDma64K: "The same of 64 KB.";
    // Where misses of translations are served by a thread of the host, and drop what missed.
    MissDelayLeast: "The least time from a miss to the thread that serves it.";
    MissDelayMost: "The most time.";
    MissProcessingLeast: "The least time that this thread takes.";
    MissProcessingMost: "The most time.";
    MissProcessingEven [Percent]: "In so many percent of misses all times between are as likely; in the others short times are as likely as long ones.";
    LinkTimeout: "How long a sender waits for an ack before it sends again.";
    LinkWindow [Bytes]: "Bytes that a link has under way without an ack at most.";
    // Where a bus has many transfers under way: see `DmaLatency` for reads.
    DmaStoreLatency: "From the end of a write of host memory to where its processors see it.";
}

/// What the value of a constant counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Picoseconds.
    Time,
    Bytes,
    /// Words of four bytes.
    Words,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    pub cost: Cost,
    /// Picoseconds, or bytes.
    pub value: u64,
    pub origin: Origin,
    /// Where it stands, or how it was calculated.
    pub source: &'static str,
}

/// A table of constants, a row a line: what it is the cost of, its value, its origin and its source.
macro_rules! constants {
    ($($cost:ident = $value:expr, $origin:ident: $source:literal;)*) => {
        &[$($crate::hardware::Constant {
            cost: $crate::hardware::Cost::$cost,
            value: $value,
            origin: $crate::hardware::Origin::$origin,
            source: $source,
        }),*]
    };
}
pub(crate) use constants;

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
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

    #[must_use]
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    #[must_use]
    pub fn of(&self, cost: Cost) -> u64 {
        self.constants.iter().find(|row| row.cost == cost).map_or(0, |row| row.value)
    }

    /// The same machine with another value of a constant.
    #[must_use]
    pub fn with(mut self, cost: Cost, value: u64) -> Self {
        for row in self.constants.iter_mut().filter(|row| row.cost == cost) {
            row.value = value;
        }
        self
    }

    /// The constants that are `open`, each at half and at twice its value: its name, `half` or `double`, and what it is then.
    pub fn varied(&self, open: impl Fn(&Constant) -> bool) -> Vec<(String, &'static str, Constant)> {
        let constants = self.constants.iter().filter(|constant| open(constant));
        let both = |it: &Constant| {
            [("half", it.value / 2), ("double", 2 * it.value)].map(|(word, value)| (word, Constant { value, ..*it }))
        };
        constants.flat_map(both).map(|(word, constant)| (format!("{:?}", constant.cost), word, constant)).collect()
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
        let Some(mut low) = stated.next() else { return 0 };
        let Some(mut high) = stated.next() else { return low.1 };
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
