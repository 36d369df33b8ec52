//! What hosts are made of: constants, processors, and how a host learns of a message.

use crate::hardware::{Cost, Profile, Ps};

/// How the host of a rank learns that a message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A thread of low priority polls while nothing else runs; one of high priority looks at the beat of a timer (Millipage §3.4).
    Polling,
    /// The NIC interrupts, and a thread of high priority is woken (Millipage §3.3).
    Interrupts,
    /// A thread that waits polls for some time; if none does, a service thread is woken. This is how mapwire waits.
    Waiters,
}

impl Notice {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Interrupts => "interrupts",
            Self::Waiters => "waiters",
        }
    }
}

/// A machine that runs a shared memory.
#[derive(Clone, Debug)]
pub struct Machine {
    pub profile: Profile,
    pub processors: u16,
    /// Ranks that run on one host; 0: all of them.
    pub ranks_per_host: u16,
    /// How ranks learn of messages.
    pub notice: Notice,
    /// How long a thread keeps a minipage that it was just granted, at least: a setting of the protocol.
    pub hold_ns: u64,
}

impl Machine {
    /// The cost of a step.
    pub(super) fn of(&self, cost: Cost) -> Ps {
        self.profile.of(cost)
    }

    /// What the sender's host does for a message with `bytes` bytes of the protocol and `data` bytes of a minipage. Data travel as a
    /// message of their own before it.
    pub(super) fn send_ps(&self, bytes: u64, data: u64) -> Ps {
        self.messages(data) * self.of(Cost::SendMessage) + (bytes + data) * self.of(Cost::SendByte)
    }

    /// What the receiver's host does for it, the protocol apart.
    pub(super) fn receive_ps(&self, bytes: u64, data: u64) -> Ps {
        self.messages(data) * self.of(Cost::ReceiveMessage)
            + (bytes + data) * self.of(Cost::ReceiveByte)
            + data * self.of(Cost::PlaceByte)
    }

    fn messages(&self, data: u64) -> u64 {
        1 + u64::from(data > 0)
    }

    /// How much longer a thread computes since another looks for messages at each beat of a timer.
    pub(super) fn slowed(&self, work_ps: Ps) -> Ps {
        let period_ps = self.of(Cost::PollPeriod);
        if self.notice != Notice::Polling || period_ps == 0 {
            return work_ps;
        }
        let looks = u128::from(self.of(Cost::PollNothing));
        let more = u128::from(work_ps) * looks / u128::from(period_ps);
        work_ps + more as Ps
    }
}
