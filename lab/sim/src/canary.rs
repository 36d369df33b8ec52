//! Bugs that are put in on purpose, to show that the checkers find them.

/// Bugs, a bug a line: its name in code, its name on a command line, and what it does.
macro_rules! canaries {
    ($(#[$meta:meta])* $type:ident { $($name:ident = $text:literal: $about:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $type {
            $(#[doc = $about] $name,)*
        }

        impl $type {
            /// All of them, with their names.
            pub const ALL: [(&'static str, Self); [$($text),*].len()] = [$(($text, Self::$name)),*];
        }
    };
}

canaries! {
    /// A bug of whoever runs a node, or of the link between nodes.
    Canary {
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
    }
}

impl Canary {
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

canaries! {
    /// A bug of whoever carries out what a shared memory asks for, or of the link below.
    SharedCanary {
        LateInvalidation = "late-invalidation": "A rank keeps a right that the protocol takes from it.";
        LostStore = "lost-store": "Bytes of a minipage count as stored in a peer's memory, and are not.";
        LostPacket = "lost-packet": "The link loses a packet now and then, and says nothing.";
        Overtaking = "overtaking": "A packet overtakes the one before it.";
        LostWaiter = "lost-waiter": "A thread that gets a lock for which others of its rank wait too is not told.";
        DoubleGrant = "double-grant": "A lock is given to a thread and to the next of its rank at once.";
        SwappedWaiters = "swapped-waiters": "A thread gets a lock before another of its rank that has waited for longer.";
        KeptLock = "kept-lock": "Threads of a rank hand a lock to each other as long as they like, though another rank waits.";
    }
}

impl SharedCanary {
    /// The bug of the cluster that it stands for.
    pub(crate) const fn of_cluster(self) -> Option<Canary> {
        match self {
            Self::LostPacket => Some(Canary::LostPacket),
            Self::Overtaking => Some(Canary::Overtaking),
            _ => None,
        }
    }
}

canaries! {
    /// A bug of the protocol of global memory, of whoever carries out what it asks for, or of the link below.
    GlobalCanary {
        EarlyReported = "early-reported": "A node that goes by a new map says at once that it has reported its pages.";
        LostRemove = "lost-remove": "A node that drops a page does not tell the directory.";
        EarlyLanded = "early-landed": "A node that sends a page counts it as landed as soon as it is on its way.";
        LostStore = "lost-store": "Bytes of a page count as stored in a peer's memory, and are not.";
        LostPacket = "lost-packet": "The link loses a packet now and then, and says nothing.";
        Overtaking = "overtaking": "A packet overtakes the one before it.";
        KeptWord = "kept-word": "What was known of a page that is stored anew or discarded still counts.";
        ClaimedDisk = "claimed-disk": "The disk counts as having what only donors have.";
        Unwritten = "unwritten": "A page of which donors have too few copies is not written to the disk.";
        Unsecured = "unsecured": "A donor dies, and pages that one other has are not brought to the disk.";
        Unsalvaged = "unsalvaged": "What lies in the memory of dead donors of this host is not read.";
        Unheld = "unheld": "A page that was lost counts as stored.";
        EarlyFrame = "early-frame": "A frame is free though an operation uses it whose end nobody waits for.";
        UntoldDiscard = "untold-discard": "Donors are not told which pages are wanted no more.";
    }
}

impl GlobalCanary {
    /// The bug of the cluster that it stands for.
    pub(crate) const fn of_cluster(self) -> Option<Canary> {
        match self {
            Self::LostPacket => Some(Canary::LostPacket),
            Self::Overtaking => Some(Canary::Overtaking),
            _ => None,
        }
    }

    /// Whether it is one of a client of donors.
    pub const fn is_of_client(self) -> bool {
        matches!(
            self,
            Self::KeptWord
                | Self::ClaimedDisk
                | Self::Unwritten
                | Self::Unsecured
                | Self::Unsalvaged
                | Self::Unheld
                | Self::EarlyFrame
                | Self::UntoldDiscard
        )
    }

    /// Whether it is one of the protocol.
    pub(crate) const fn is_of_protocol(self) -> bool {
        matches!(self, Self::EarlyReported | Self::LostRemove | Self::EarlyLanded)
    }
}

canaries! {
    /// A bug of remote procedure calls, or of the link below.
    RpcCanary {
        LostPacket = "lost-packet": "The link loses a packet now and then, and says nothing.";
        Overtaking = "overtaking": "A packet overtakes the one before it.";
        ChangedByte = "changed-byte": "A byte of a payload changes on the way.";
        LostTimer = "lost-timer": "Deadlines pass without notice.";
        OtherReply = "other-reply": "A call is answered by the reply to another.";
        Unanswered = "unanswered": "A node does not connect to a peer that says hello.";
        Unimported = "unimported": "A node does not import what a peer lends.";
        KeptLoan = "kept-loan": "Memory that was lent in a connection that is over counts as lent in the next.";
    }
}

impl RpcCanary {
    /// The bug of the cluster that it stands for.
    pub(crate) const fn of_cluster(self) -> Option<Canary> {
        match self {
            Self::LostPacket => Some(Canary::LostPacket),
            Self::Overtaking => Some(Canary::Overtaking),
            Self::ChangedByte => Some(Canary::ChangedByte),
            Self::LostTimer => Some(Canary::LostTimer),
            Self::OtherReply | Self::Unanswered | Self::Unimported | Self::KeptLoan => None,
        }
    }
}
