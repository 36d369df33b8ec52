//! Bugs that are put in on purpose, to show that the checkers find them.

/// Bugs, a bug a line: its name in code, its name on a command line, and what it does.
macro_rules! canaries {
    ($($name:ident = $text:literal: $about:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Canary {
            $(#[doc = $about] $name,)*
        }

        impl Canary {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name on a command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

canaries! {
    // Of whoever runs a node, or of the link between nodes.
    LostPacket = "lost-packet": "The link loses a packet now and then, and says nothing.";
    RepeatedPacket = "repeated-packet": "The link delivers a packet twice.";
    Overtaking = "overtaking": "A packet overtakes the one before it.";
    ReusedSequence = "reused-sequence": "A packet carries the sequence number of the one before it.";
    ChangedByte = "changed-byte": "A byte of a payload changes on the way.";
    EarlyTransmitted = "early-transmitted": "A packet counts as transmitted before its source has been read.";
    EarlyRelease = "early-release": "Pages of a command are let go as soon as it is submitted.";
    ToldTwice = "told-twice": "A completion is told twice.";
    LostCompletion = "lost-completion": "A completion is not told.";
    LostNotification = "lost-notification": "A notification is not told.";
    LostSignal = "lost-signal": "The signal of a message is not written.";
    AtomicTwice = "atomic-twice": "An atomic operation is carried out twice.";
    LateRevoke = "late-revoke": "An export is revoked some time after the program believes so.";
    KeptImport = "kept-import": "A program gives an import up, and its node is not told.";
    UntoldCrash = "untold-crash": "Nobody is told that a node has crashed.";
    NeverRetried = "never-retried": "A transport that was full is never tried again.";
    UnservedMiss = "unserved-miss": "Misses of the network interface are not served.";
    LostTimer = "lost-timer": "Deadlines pass without notice.";
    LostAck = "lost-ack": "Acks that go by themselves are lost.";
    KeptEpoch = "kept-epoch": "A node that restarts keeps the epoch of its former self.";
    UncheckedSum = "unchecked-sum": "Datagrams that were damaged are delivered.";
    LostEarly = "lost-early": "Packets that came before their turn are forgotten.";
    AnyKey = "any-key": "An exporter takes any key of a forged packet for the right one.";
    StaleKey = "stale-key": "The key of an export that is gone opens the one in its place.";
    UnboundGrant = "unbound-grant": "A node that was granted nothing may use what another was granted.";
    AnyImporter = "any-importer": "An export's list of importers is not looked at.";
    LostSecond = "lost-second": "Of two notifications that wait the second is lost.";
    SwappedNotifications = "swapped-notifications": "Of two notifications that wait the second is told first.";
    RefusedPin = "refused-pin": "A pin that was refused counts as done.";
    FormerEarly = "former-early": "Packets that came early of a node that has started anew are applied.";
    KeptPages = "kept-pages": "Pages of an export that is revoked stay held.";
    UntoldRevoke = "untold-revoke": "A program is not told that an export which it imports is revoked.";
    KeptGrant = "kept-grant": "A node that has started anew may use what its former self was granted.";
    AnyReply = "any-reply": "A node takes any key of the answer to a fetch for the right one.";
    WideWindow = "wide-window": "A node keeps a packet that lies beyond its window.";
    RestartedTwice = "restarted-twice": "A node takes a peer that has started anew for one that has done so twice.";
    AppliedRest = "applied-rest": "What follows a packet that is refused is applied, though it is of the same message.";
    // Of whoever carries out what a shared memory or global memory asks for.
    LateInvalidation = "late-invalidation": "A rank keeps a right that the protocol takes from it.";
    LostStore = "lost-store": "Bytes of a minipage or page count as stored in a peer's memory, and are not.";
    LostWaiter = "lost-waiter": "A thread that gets a lock for which others of its rank wait too is not told.";
    DoubleGrant = "double-grant": "A lock is given to a thread and to the next of its rank at once.";
    SwappedWaiters = "swapped-waiters": "A thread gets a lock before another of its rank that has waited for longer.";
    KeptLock = "kept-lock": "Threads of a rank hand a lock to each other as long as they like, though another rank waits.";
    WideSet = "wide-set": "With the bytes of minipages those of the next one on the page are stored.";
    GrantedOther = "granted-other": "A grant names a minipage beside those that are served, which was refused, put off or not asked for.";
    GreedyAhead = "greedy-ahead": "What is requested ahead of any access takes the right to write.";
    // Of lazy release consistency.
    UnawaitedDiff = "unawaited-diff": "A rank takes the diffs that it has sent for acknowledged at once.";
    LostNotice = "lost-notice": "A write notice names another page.";
    UnmergedTime = "unmerged-time": "A rank tells of its own writes, and not of those that it has learned of.";
    UntoldAnswer = "untold-answer": "The home of an object does not say what others have written when it answers.";
    UntoldCall = "untold-call": "A rank that calls an object does not say what it has written.";
    LateTwin = "late-twin": "A twin is made after the first store.";
    LostMerge = "lost-merge": "A fetch replaces what was written here.";
    UnnoticedHome = "unnoticed-home": "The home of a page may go on storing to it when an interval ends.";
    UntoldHome = "untold-home": "A home that is alone, or from which a page moves, is not told that others ask for the page.";
    EarlyClosed = "early-closed": "A home that is told of others answers before it write-protects the page.";
    // Of the protocol of global memory, and of remote procedure calls.
    EarlyReported = "early-reported": "A node that goes by a new map says at once that it has reported its pages.";
    LostRemove = "lost-remove": "A node that drops a page does not tell the directory.";
    EarlyLanded = "early-landed": "A node that sends a page counts it as landed as soon as it is on its way.";
    OtherReply = "other-reply": "A call is answered by the reply to another.";
    Unanswered = "unanswered": "A node does not connect to a peer that says hello.";
    Unimported = "unimported": "A node does not import what a peer lends.";
    KeptLoan = "kept-loan": "Memory that was lent in a connection that is over counts as lent in the next.";
    // Of a client of donors.
    KeptWord = "kept-word": "What was known of a page that is stored anew or discarded still counts.";
    ClaimedDisk = "claimed-disk": "The disk counts as having what only donors have.";
    Unwritten = "unwritten": "A page of which donors have too few copies is not written to the disk.";
    Unsecured = "unsecured": "A donor dies, and pages that one other has are not brought to the disk.";
    Unsalvaged = "unsalvaged": "What lies in the memory of dead donors of this host is not read.";
    Unheld = "unheld": "A page that was lost counts as stored.";
    EarlyFrame = "early-frame": "A frame is free though an operation uses it whose end nobody waits for.";
    UntoldDiscard = "untold-discard": "Donors are not told of discards.";
}

impl Canary {
    /// Bugs that runs of calls of exports and imports can have.
    pub const CALLS: &[Self] = Self::ALL.split_at(Self::LateInvalidation as usize).0;

    /// Those that runs of services can have.
    pub const SHARED: &[Self] = &[
        Self::LateInvalidation,
        Self::LostStore,
        Self::LostPacket,
        Self::Overtaking,
        Self::LostWaiter,
        Self::DoubleGrant,
        Self::SwappedWaiters,
        Self::KeptLock,
        Self::WideSet,
        Self::GrantedOther,
        Self::GreedyAhead,
    ];
    pub const HLRC: &[Self] = &[
        Self::LateInvalidation,
        Self::LostStore,
        Self::LostPacket,
        Self::Overtaking,
        Self::UnawaitedDiff,
        Self::LostNotice,
        Self::UnmergedTime,
        Self::UntoldAnswer,
        Self::UntoldCall,
        Self::LateTwin,
        Self::LostMerge,
        Self::UnnoticedHome,
        Self::UntoldHome,
        Self::EarlyClosed,
    ];
    pub const GLOBAL: &[Self] = &[
        Self::EarlyReported,
        Self::LostRemove,
        Self::EarlyLanded,
        Self::LostStore,
        Self::LostPacket,
        Self::Overtaking,
        Self::KeptWord,
        Self::ClaimedDisk,
        Self::Unwritten,
        Self::Unsecured,
        Self::Unsalvaged,
        Self::Unheld,
        Self::EarlyFrame,
        Self::UntoldDiscard,
    ];
    pub const RPC: &[Self] = &[
        Self::LostPacket,
        Self::Overtaking,
        Self::ChangedByte,
        Self::LostTimer,
        Self::OtherReply,
        Self::Unanswered,
        Self::Unimported,
        Self::KeptLoan,
    ];

    /// Whether it is a bug of a lossy transport or its links, or one of a lossless transport; `None`: of whoever runs the node.
    pub(crate) const fn is_lossy(self) -> Option<bool> {
        match self {
            Self::LostAck
            | Self::KeptEpoch
            | Self::UncheckedSum
            | Self::LostEarly
            | Self::FormerEarly
            | Self::KeptGrant
            | Self::WideWindow
            | Self::RestartedTwice => Some(true),
            Self::LostPacket
            | Self::RepeatedPacket
            | Self::Overtaking
            | Self::ReusedSequence
            | Self::ChangedByte
            | Self::EarlyTransmitted
            | Self::UntoldCrash
            | Self::NeverRetried => Some(false),
            _ => None,
        }
    }

    /// The bug, if it is one of whoever runs a node or of the link, and not of a service.
    pub(crate) fn of_cluster(self) -> Option<Self> {
        Self::CALLS.contains(&self).then_some(self)
    }

    /// Whether it is one of the protocol of global memory.
    pub(crate) const fn is_of_global_memory(self) -> bool {
        matches!(self, Self::EarlyReported | Self::LostRemove | Self::EarlyLanded)
    }

    /// Whether it is one of a client of donors.
    pub const fn is_of_client(self) -> bool {
        let number = self as usize;
        number >= Self::KeptWord as usize && number <= Self::UntoldDiscard as usize
    }
}
