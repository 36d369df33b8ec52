//! What happened in runs, so that what never happens is seen: a check whose condition never holds, or a fault that never fires, proves
//! nothing.

use std::collections::BTreeMap;

/// How often the faults of a rule were drawn and fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    pub drawn: u64,
    /// Things that they did: packets that they harmed or delayed, pins that they refused, nodes that they stopped or slowed.
    pub fired: u64,
}

macro_rules! conditions {
    ($($name:ident = ($check:literal, $about:literal),)*) => {
        /// The condition of a check: what must happen before that can fail.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Condition {
            $(#[doc = $about] $name,)*
        }

        impl Condition {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The check that it belongs to, and what happens.
            #[must_use]
            pub const fn about(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => ($check, $about),)*
                }
            }
        }
    };
}

conditions! {
    Delivered = ("delivery", "a message arrives whole"),
    Signalled = ("delivery", "a message arrives with a signal"),
    Notified = ("delivery", "a message is notified"),
    NotifiedDeep = ("delivery", "two notifications or more of a process wait at once"),
    Flushed = ("delivery", "a flush ends behind messages"),
    Fetched = ("delivery", "a fetch brings what was exported"),
    AtTheEnd = ("bounds", "a transfer ends at the last byte of its export"),
    Landed = ("bounds", "a store goes to where its export is redirected"),
    Completed = ("completions", "a command with a completion word ends"),
    FailedRevoked = ("completions", "a command fails since its export is revoked"),
    Scattered = ("delivery", "a packet lands in three pieces of memory or more"),
    FailedGone = ("completions", "a command fails since its peer is gone"),
    FailedPages = ("completions", "a command fails for want of pages"),
    StoreRefused = ("completions", "a node learns that its stores were refused"),
    Added = ("atomics", "an addition is answered"),
    Unpinned = ("pinned pages", "a page is unpinned"),
    PinsRefused = ("pinned pages", "an export or a transfer ends since the pinner refuses"),
    PinsLimited = ("pinned pages", "an export or a transfer ends at the limit on pinned pages"),
    PinsHealed = ("pinned pages", "pages are pinned at a node whose pinner had refused before"),
    PagesHeld = ("pinned pages", "a process at rest holds pages of its exports, and they are counted"),
    Granted = ("importers", "a listed importer is granted an export"),
    RefusedUnlisted = ("importers", "an importer that is not listed is refused"),
    RefusedUser = ("importers", "an importer of another user is refused"),
    RefusedToken = ("importers", "an importer with another token is refused"),
    RefusedRight = ("importers", "an importer that wants a right that is not given is refused"),
    RevokeTold = ("importers", "an importer learns that its export is revoked"),
    ForgedKey = ("forgery", "a packet with a wrong key is refused"),
    ForgedStaleExport = ("forgery", "a packet for an export that is gone is refused"),
    ForgedStaleKey = ("forgery", "a packet with the key of a former export is refused"),
    ForgedOtherKey = ("forgery", "a packet with the key of another export is refused"),
    ForgedStranger = ("forgery", "a packet with the right key of a node that was granted nothing is refused"),
    ForgedRange = ("forgery", "a packet past the end of its export is refused"),
    ForgedSignal = ("forgery", "a packet whose signal lies outside its export is refused"),
    ForgedRight = ("forgery", "a packet for a right that was not granted is refused"),
    ForgedFormer = ("forgery", "a packet with the right key of a node whose former self was granted the export is refused"),
    ForgedAhead = ("forgery", "a datagram is forged whose packet lies beyond the window"),
    ForgedPart = ("forgery", "a message of several packets is refused since the first shows a wrong key"),
    ForgedReply = ("forgery", "an answer to a fetch with a wrong key is refused"),
    Misused = ("forgery", "a command that is not allowed is refused by its own node"),
    Crashed = ("restarts", "a node stops"),
    Restarted = ("restarts", "a node starts anew"),
    RestartedEarly = ("restarts", "a node starts anew while a peer keeps early packets of its former self"),
    GreetedAgain = ("restarts", "an answer of a node's former self to a question that is over comes again"),
    RestartedUnderWay = ("restarts", "a peer learns of a restart while messages of the former self are under way"),
    EarlyDropped = ("room", "a packet that comes before its turn finds no room"),
    WindowFull = ("room", "a link has as many packets under way as it may"),
    AtRest = ("room", "a run comes to rest, and what its nodes hold is counted"),
    Loaded = ("sequential consistency", "a thread loads what another rank stored last"),
    SharedFault = ("sequential consistency", "two threads of a rank wait for one minipage at once"),
    Prefetched = ("sequential consistency", "a rank requests minipages of a page together"),
    ReadAhead = ("sequential consistency", "the faults of a thread have brought minipages ahead of it"),
    Locked = ("locks", "a thread gets a lock"),
    LockWaits = ("locks", "a thread waits for a lock that another rank has"),
    LockQueued = ("locks", "a thread waits for a lock that another thread of its rank has or waits for"),
    LockQueuedDeep = ("locks", "two threads or more of a rank wait for one lock"),
    LockYielded = ("locks", "a rank gives a lock away for which threads of its own wait"),
    Passed = ("barriers", "a thread passes a barrier"),
    Litmus = ("litmus", "a litmus test has an outcome"),
    LazyLoaded = ("release consistency", "a thread loads what another rank stored before it in the order of synchronisation"),
    LazyRaced = ("release consistency", "a thread loads an older value than was stored last, which no synchronisation forbids"),
    LazyMerged = ("release consistency", "a page is fetched that its rank has written"),
    LazyRaceFound = ("release consistency", "two stores that nothing orders are reported"),
    LazyMoved = ("release consistency", "the home of a page moves"),
    PageFetched = ("pages", "a page of global memory is fetched from another node"),
    PageAbsent = ("pages", "a page of global memory is absent"),
    PageStored = ("pages", "a page of global memory is stored"),
    PageStoredTwice = ("pages", "a page of global memory is stored by two nodes"),
    PageRefused = ("pages", "a page of global memory is stored by nobody"),
    DonorFetched = ("donors", "a page is read from donors or the disk"),
    Salvaged = ("donors", "a page is read from the memory of a dead donor"),
    LateDonor = ("donors", "an operation waits for frames of others that donors end late"),
    Joined = ("membership", "a node joins the global memory"),
    Left = ("membership", "a node leaves the global memory"),
    Died = ("membership", "a node of the global memory dies"),
    Answered = ("calls", "a call gets its reply"),
    TimedOut = ("calls", "a call's deadline comes first"),
    LateReply = ("calls", "a reply comes after the deadline"),
    Ended = ("calls", "a call ends with its connection"),
    Stray = ("calls", "a record of a session that is over is dropped"),
    OneWay = ("calls", "a call without an answer is carried out"),
}

/// What happened in a run, or in several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    rules: BTreeMap<&'static str, Fired>,
    conditions: [u64; Condition::ALL.len()],
}

impl Default for Coverage {
    fn default() -> Self {
        Self { rules: BTreeMap::new(), conditions: [0; Condition::ALL.len()] }
    }
}

impl Coverage {
    #[inline]
    pub(crate) fn note(&mut self, condition: Condition) {
        self.conditions[condition as usize] += 1;
    }

    /// A condition held so many times.
    pub(crate) fn note_many(&mut self, condition: Condition, times: u64) {
        self.conditions[condition as usize] += times;
    }

    /// Faults of a rule were drawn, and fired so many times.
    pub(crate) fn note_rule(&mut self, rule: &'static str, fired: u64) {
        let of_rule = self.rules.entry(rule).or_default();
        of_rule.drawn += 1;
        of_rule.fired += fired;
    }

    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Self) {
        for (rule, fired) in &other.rules {
            let of_rule = self.rules.entry(rule).or_default();
            of_rule.drawn += fired.drawn;
            of_rule.fired += fired.fired;
        }
        for (count, more) in self.conditions.iter_mut().zip(other.conditions) {
            *count += more;
        }
    }

    /// How often faults of a rule were drawn, and fired.
    #[must_use]
    pub fn of_rule(&self, rule: &str) -> Fired {
        self.rules.get(rule).copied().unwrap_or_default()
    }

    /// How often a condition held.
    #[must_use]
    pub fn of(&self, condition: Condition) -> u64 {
        self.conditions[condition as usize]
    }
}

/// What happened in the runs of a service, a count a line: its name, what it counts, and the condition that it says has held.
macro_rules! counted {
    ($name:ident { $($count:ident $(= $condition:ident)?: $about:literal;)* }) => {
        /// What happened in a run, so that one that shows nothing is noticed.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $about] pub $count: u64,)*
        }

        impl $name {
            /// All counts, in order.
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($count), self.$count)),*]
            }

            pub(crate) fn cover(&self, coverage: &mut $crate::Coverage) {
                $($(coverage.note_many($crate::Condition::$condition, self.$count);)?)*
            }

            /// Adds what happened in another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$count += other.$count;)*
            }
        }
    };
}
pub(crate) use counted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up_and_what_never_happened_counts_0() {
        let mut coverage = Coverage::default();
        let mut other = Coverage::default();
        other.note(Condition::Delivered);
        other.note_rule("drop", 3);
        for _ in 0..2 {
            coverage.add(&other);
        }
        assert_eq!(coverage.of(Condition::Delivered), 2);
        assert_eq!(coverage.of(Condition::Flushed), 0);
        let drop = coverage.of_rule("drop");
        assert_eq!((drop.drawn, drop.fired), (2, 6));
        assert_eq!(coverage.of_rule("crash"), Fired::default());
    }
}
