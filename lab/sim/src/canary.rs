//! Bugs that are put in on purpose, to show that the checkers find them.

/// A bug of whoever runs a node, or of the link between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// The link loses a packet now and then, and says nothing.
    LostPacket,
    /// The link delivers a packet twice.
    RepeatedPacket,
    /// A packet overtakes the one before it.
    Overtaking,
    /// A packet carries the sequence number of the one before it.
    ReusedSequence,
    /// A byte of a payload changes on the way.
    ChangedByte,
    /// A packet counts as transmitted before its source has been read.
    EarlyTransmitted,
    /// Pages of a command are let go as soon as it is submitted.
    EarlyRelease,
    /// A completion is told twice.
    ToldTwice,
    /// A completion is not told.
    LostCompletion,
    /// A notification is not told.
    LostNotification,
    /// The signal of a message is not written.
    LostSignal,
    /// An atomic operation is carried out twice.
    AtomicTwice,
    /// An export is revoked some time after the program believes so.
    LateRevoke,
    /// A program gives an import up, and its node is not told.
    KeptImport,
    /// Nobody is told that a node has crashed.
    UntoldCrash,
    /// A transport that was full is never tried again.
    NeverRetried,
    /// Misses of the network interface are not served.
    UnservedMiss,
    /// Deadlines pass without notice.
    LostTimer,
    /// Acks that go by themselves are lost.
    LostAck,
    /// A node that restarts keeps the epoch of its former self.
    KeptEpoch,
    /// Datagrams that were damaged are delivered.
    UncheckedSum,
    /// Packets that came before their turn are forgotten.
    LostEarly,
    /// An exporter takes any key of a forged packet for the right one.
    AnyKey,
    /// The key of an export that is gone opens the one in its place.
    StaleKey,
    /// A node that was granted nothing may use what another was granted.
    UnboundGrant,
    /// An export's list of importers is not looked at.
    AnyImporter,
    /// Of two notifications that wait the second is lost.
    LostSecond,
    /// Of two notifications that wait the second is told first.
    SwappedNotifications,
    /// A pin that was refused counts as done.
    RefusedPin,
    /// Packets that came early of a node that has started anew are applied.
    FormerEarly,
    /// Pages of an export that is revoked stay held.
    KeptPages,
    /// A program is not told that an export which it imports is revoked.
    UntoldRevoke,
    /// A node that has started anew may use what its former self was granted.
    KeptGrant,
    /// A node takes any key of the answer to a fetch for the right one.
    AnyReply,
    /// A node keeps a packet that lies beyond its window.
    WideWindow,
    /// A node takes a peer that has started anew for one that has done so twice.
    RestartedTwice,
    /// What follows a packet that is refused is applied, though it is of the same message.
    AppliedRest,
}

impl Canary {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 37] = [
        ("lost-packet", Self::LostPacket),
        ("repeated-packet", Self::RepeatedPacket),
        ("overtaking", Self::Overtaking),
        ("reused-sequence", Self::ReusedSequence),
        ("changed-byte", Self::ChangedByte),
        ("early-transmitted", Self::EarlyTransmitted),
        ("early-release", Self::EarlyRelease),
        ("told-twice", Self::ToldTwice),
        ("lost-completion", Self::LostCompletion),
        ("lost-notification", Self::LostNotification),
        ("lost-signal", Self::LostSignal),
        ("atomic-twice", Self::AtomicTwice),
        ("late-revoke", Self::LateRevoke),
        ("kept-import", Self::KeptImport),
        ("untold-crash", Self::UntoldCrash),
        ("never-retried", Self::NeverRetried),
        ("unserved-miss", Self::UnservedMiss),
        ("lost-timer", Self::LostTimer),
        ("lost-ack", Self::LostAck),
        ("kept-epoch", Self::KeptEpoch),
        ("unchecked-sum", Self::UncheckedSum),
        ("lost-early", Self::LostEarly),
        ("any-key", Self::AnyKey),
        ("stale-key", Self::StaleKey),
        ("unbound-grant", Self::UnboundGrant),
        ("any-importer", Self::AnyImporter),
        ("lost-second", Self::LostSecond),
        ("swapped-notifications", Self::SwappedNotifications),
        ("refused-pin", Self::RefusedPin),
        ("former-early", Self::FormerEarly),
        ("kept-pages", Self::KeptPages),
        ("untold-revoke", Self::UntoldRevoke),
        ("kept-grant", Self::KeptGrant),
        ("any-reply", Self::AnyReply),
        ("wide-window", Self::WideWindow),
        ("restarted-twice", Self::RestartedTwice),
        ("applied-rest", Self::AppliedRest),
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
}

/// A bug of whoever carries out what a shared memory asks for, or of the link below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedCanary {
    /// A rank keeps a right that the protocol takes from it.
    LateInvalidation,
    /// Bytes of a minipage count as stored in a peer's memory, and are not.
    LostStore,
    /// The link loses a packet now and then, and says nothing.
    LostPacket,
    /// A packet overtakes the one before it.
    Overtaking,
    /// A thread that gets a lock for which others of its rank wait too is not told.
    LostWaiter,
    /// A lock is given to a thread and to the next of its rank at once.
    DoubleGrant,
    /// A thread gets a lock before another of its rank that has waited for longer.
    SwappedWaiters,
    /// Threads of a rank hand a lock to each other as long as they like, though another rank waits.
    KeptLock,
}

impl SharedCanary {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("late-invalidation", Self::LateInvalidation),
        ("lost-store", Self::LostStore),
        ("lost-packet", Self::LostPacket),
        ("overtaking", Self::Overtaking),
        ("lost-waiter", Self::LostWaiter),
        ("double-grant", Self::DoubleGrant),
        ("swapped-waiters", Self::SwappedWaiters),
        ("kept-lock", Self::KeptLock),
    ];

    /// The bug of the cluster that it stands for.
    pub(crate) const fn of_cluster(self) -> Option<Canary> {
        match self {
            Self::LostPacket => Some(Canary::LostPacket),
            Self::Overtaking => Some(Canary::Overtaking),
            _ => None,
        }
    }
}

/// A bug of the protocol of global memory, of whoever carries out what it asks for, or of the link below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GlobalCanary {
    /// A node that goes by a new map says at once that it has reported its pages.
    EarlyReported,
    /// A node that drops a page does not tell the directory.
    LostRemove,
    /// A node that sends a page counts it as landed as soon as it is on its way.
    EarlyLanded,
    /// Bytes of a page count as stored in a peer's memory, and are not.
    LostStore,
    /// The link loses a packet now and then, and says nothing.
    LostPacket,
    /// A packet overtakes the one before it.
    Overtaking,
}

impl GlobalCanary {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("early-reported", Self::EarlyReported),
        ("lost-remove", Self::LostRemove),
        ("early-landed", Self::EarlyLanded),
        ("lost-store", Self::LostStore),
        ("lost-packet", Self::LostPacket),
        ("overtaking", Self::Overtaking),
    ];

    /// The bug of the cluster that it stands for.
    pub(crate) const fn of_cluster(self) -> Option<Canary> {
        match self {
            Self::LostPacket => Some(Canary::LostPacket),
            Self::Overtaking => Some(Canary::Overtaking),
            _ => None,
        }
    }

    /// Whether it is one of the protocol.
    pub(crate) const fn is_of_protocol(self) -> bool {
        matches!(self, Self::EarlyReported | Self::LostRemove | Self::EarlyLanded)
    }
}

/// A bug of remote procedure calls, or of the link below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RpcCanary {
    /// The link loses a packet now and then, and says nothing.
    LostPacket,
    /// A packet overtakes the one before it.
    Overtaking,
    /// A byte of a payload changes on the way.
    ChangedByte,
    /// Deadlines pass without notice.
    LostTimer,
    /// A call that comes again is answered by the reply to another.
    OtherReply,
}

impl RpcCanary {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("lost-packet", Self::LostPacket),
        ("overtaking", Self::Overtaking),
        ("changed-byte", Self::ChangedByte),
        ("lost-timer", Self::LostTimer),
        ("other-reply", Self::OtherReply),
    ];

    /// The bug of the cluster that it stands for.
    pub(crate) const fn of_cluster(self) -> Option<Canary> {
        match self {
            Self::LostPacket => Some(Canary::LostPacket),
            Self::Overtaking => Some(Canary::Overtaking),
            Self::ChangedByte => Some(Canary::ChangedByte),
            Self::LostTimer => Some(Canary::LostTimer),
            Self::OtherReply => None,
        }
    }
}
