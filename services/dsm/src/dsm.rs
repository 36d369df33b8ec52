//! One rank: joins coherence, locks, barriers and allocation, and dispatches messages.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::allocation::{self, AllocOptions, Allocation};
use crate::coherence::{Coherence, Release};
use crate::context::{Context, Wait};
use crate::lazy::Lazy;
use crate::protocols::Protocols;
use crate::synchronisation::{Barriers, Locks, WaitedBarrier};
use crate::{
    Access, Action, Barrier, Config, ConfigError, Counters, Error, Lock, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES, Message,
    Minipage, PeerError, Progress, Protection, Race, Rank, Thread, Violation,
};

/// The shared-memory protocol of one rank.
///
/// Its methods are of four kinds:
///
/// * **getters**: [`config`](Self::config), [`counters`](Self::counters), [`minipage_at`](Self::minipage_at),
///   [`manager`](Self::manager), [`home`](Self::home), [`lock_successor`](Self::lock_successor);
/// * **inputs of a thread**: [`handle_fault`](Self::handle_fault), [`prefetch`](Self::prefetch), [`push`](Self::push), [`alloc`](Self::alloc),
///   [`alloc_rows`](Self::alloc_rows), [`lock`](Self::lock),
///   [`unlock`](Self::unlock), [`barrier`](Self::barrier), [`broadcast`](Self::broadcast). A thread does one at
///   a time: until it is resumed it gives no other input;
/// * **inputs of the machine**: [`handle_message`](Self::handle_message), [`handle_fetched`](Self::handle_fetched),
///   [`handle_changes`](Self::handle_changes),   [`release_holds`](Self::release_holds);
/// * **outputs**: [`poll_race`](Self::poll_race), [`poll_action`](Self::poll_action), [`encode`](Self::encode), [`poll_hold`](Self::poll_hold).
///
/// After every input, call `poll_action` until it returns nothing, and carry out each action before the next, also before a thread whose
/// operation was [`Progress::Done`] continues. Then `poll_hold` says by when `release_holds` must be called if no other input arrives.
///
/// At first every view is closed to the application ([`Protection::None`]) and all bytes are zero.
///
/// Memory is never freed: an allocation lasts as long as the job. The papers' programs allocate at their start, and freeing a view of a
/// page would need the consent of every rank that ever mapped it.
#[derive(Debug)]
pub struct Dsm {
    context: Context,
    coherence: Protocols,
    locks: Locks,
    barriers: Barriers,
    allocation: Allocation,
    /// The last message encoded.
    bytes: Box<[u8; MAX_MESSAGE_BYTES]>,
}

impl Dsm {
    /// A rank without data. Allocates all tables that it will ever use; those that grow with pages and views are zeroed memory, which the
    /// OS supplies on first use.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let too_large = ConfigError::TooLarge { pages: config.pages, views: config.views };
        Ok(Dsm {
            context: Context::new(config),
            coherence: Protocols::new(&config)?,
            locks: Locks::new(&config),
            barriers: Barriers::new(&config).ok_or(too_large)?,
            allocation: Allocation::new(&config),
            bytes: Box::new([0; MAX_MESSAGE_BYTES]),
        })
    }

    /// The shape with which this rank was made.
    pub fn config(&self) -> &Config {
        self.context.config()
    }

    /// Counters of this rank so far.
    pub fn counters(&self) -> Counters {
        *self.context.counters()
    }

    /// The minipage that covers a page of a view, as far as this rank knows, and the application's access to it here. Pages are those of
    /// the segment; a small minipage's neighbours are in other views.
    pub fn minipage_at(&self, view: u16, page: u64) -> Option<(Minipage, Protection)> {
        self.coherence.minipage_at(view, page)
    }

    /// The home of a page under [`Protocol::Hlrc`](crate::Protocol::Hlrc), as far as this rank knows.
    #[must_use]
    pub fn home(&self, page: u64) -> Option<Rank> {
        self.coherence.lazy()?.home(page)
    }

    /// How often the log of write notices was full, and this rank forgot which pages were written ([`Config::notices`]).
    #[must_use]
    pub fn condensed_notices(&self) -> u64 {
        self.coherence.lazy().map_or(0, Lazy::condensed)
    }

    /// The rank that manages the minipages starting on that page; `None` outside the segment.
    pub fn manager(&self, page: u64) -> Option<Rank> {
        self.coherence.manager(page)
    }

    /// Begins to serve a page fault of a thread, at time `now_ns` of this rank's monotonic clock. `page` counts from the start of the
    /// segment. `Done`: the access is allowed by now, retry it. `Pending`: a resume follows, with
    /// [`Outcome::Served`](crate::Outcome::Served), or with [`Error::NotShared`] if nothing is allocated there.
    pub fn handle_fault(
        &mut self,
        now_ns: u64,
        thread: Thread,
        view: u16,
        page: u64,
        access: Access,
    ) -> Result<Progress, Error> {
        self.release_holds(now_ns);
        self.begin(thread)?;
        self.coherence.handle_fault(&mut self.context, thread, (view, page), access)
    }

    /// Requests a minipage before `thread` accesses it, at time `now_ns`. The thread continues, and nobody is resumed when the minipage
    /// arrives. A thread that faults there meanwhile waits for this request.
    ///
    /// Requests nothing if the access is allowed already, or if the minipage is under way. Nothing arrives if nothing is allocated there.
    /// False, without a request, if [`MAX_PREFETCHES`](crate::MAX_PREFETCHES) are outstanding. Under
    /// [`Protocol::Hlrc`](crate::Protocol::Hlrc) it fetches a page that is out of date and not written here.
    pub fn prefetch(
        &mut self,
        now_ns: u64,
        thread: Thread,
        view: u16,
        page: u64,
        access: Access,
    ) -> Result<bool, Error> {
        self.release_holds(now_ns);
        self.begin(thread)?;
        self.coherence.prefetch(&mut self.context, (view, page), access)
    }

    /// Tells rank `to` that it will read the bytes of `run`, which may be of several minipages: it requests the first of them, as
    /// [`prefetch`](Self::prefetch) does, up to [`MAX_PREFETCHES`](crate::MAX_PREFETCHES) at a time. The thread continues. Does nothing for
    /// lazily consistent memory, which is out of date before the other rank synchronises with this one.
    ///
    /// # Errors
    /// [`Error::UnknownRank`]; [`Error::OwnRank`]; [`Error::NotShared`], for bytes outside the segment.
    pub fn push(&mut self, now_ns: u64, thread: Thread, to: Rank, run: Minipage) -> Result<(), Error> {
        self.release_holds(now_ns);
        self.begin(thread)?;
        let Config { rank, ranks, pages, views, .. } = *self.config();
        Error::check_push(rank, to, ranks)?;
        if !run.is_within(pages, views) {
            return Err(Error::NotShared { view: run.view, page: run.first_page() });
        }
        if run.view > 0 || self.coherence.lazy().is_none() {
            self.context.send(to, Message::Push { run });
        }
        Ok(())
    }

    /// Begins to allocate `bytes` bytes, zero and writable in this rank: a minipage, or one a page if they are more than a page. A resume always follows, with
    /// [`Outcome::Allocated`](crate::Outcome::Allocated) or [`Error::OutOfMemory`].
    ///
    /// A minipage of 64 bytes to a page is aligned to 64 bytes, a shorter one to 16, a longer one to a page.
    pub fn alloc(&mut self, thread: Thread, bytes: u64) -> Result<(), Error> {
        self.alloc_with(thread, bytes, AllocOptions::default())
    }

    /// As [`alloc`](Self::alloc), with options.
    ///
    /// # Errors
    /// Options that the job cannot fulfil: [`Error::Unit`], [`Error::UnknownRank`], [`Error::OtherProtocol`].
    ///
    /// An allocation may be sequentially consistent beside lazy ones. Accesses to it do not synchronise these: a flag in the one does not
    /// publish data in the other.
    pub fn alloc_with(&mut self, thread: Thread, bytes: u64, options: AllocOptions) -> Result<(), Error> {
        self.begin(thread)?;
        self.allocation.alloc(&mut self.context, &mut self.coherence, thread, bytes, options)
    }

    /// Begins to allocate `rows` rows of `row_bytes` bytes, all zero and writable in this rank. A resume always follows, with
    /// [`Outcome::Allocated`](crate::Outcome::Allocated) and the address of the first row, or [`Error::OutOfMemory`].
    ///
    /// Under [`Protocol::Minipages`](crate::Protocol::Minipages) each row is a minipage, where [`Units`](crate::Units) says. Otherwise they
    /// are adjacent.
    ///
    /// # Errors
    /// [`Error::NoRows`]; [`Error::UnitOfRows`], for options with a unit; those of [`alloc_with`](Self::alloc_with).
    pub fn alloc_rows(
        &mut self,
        thread: Thread,
        rows: u64,
        row_bytes: u64,
        options: AllocOptions,
    ) -> Result<(), Error> {
        self.begin(thread)?;
        self.allocation.alloc_rows(&mut self.context, &mut self.coherence, thread, (rows, row_bytes), options)
    }

    /// Locks. `Done`: the thread has the lock (the token was here and idle). `Pending`: a resume with
    /// [`Outcome::Locked`](crate::Outcome::Locked) follows when it is the thread's turn.
    pub fn lock(&mut self, thread: Thread, lock: Lock) -> Result<Progress, Error> {
        self.begin(thread)?;
        self.locks.lock(&mut self.context, thread, lock)
    }

    /// Unlocks, and passes the lock to the next waiter. Never waits.
    pub fn unlock(&mut self, thread: Thread, lock: Lock) -> Result<(), Error> {
        self.begin(thread)?;
        self.locks.unlock(&mut self.context, &mut self.coherence, thread, lock)
    }

    /// The rank to which this one must pass a lock that it has or waits for; `None` if it knows of none.
    #[must_use]
    pub fn lock_successor(&self, lock: Lock) -> Option<Rank> {
        self.locks.successor(lock)
    }

    /// Waits until [`Config::participants`] threads of every rank have arrived. A resume with [`Outcome::Passed`](crate::Outcome::Passed)
    /// always follows.
    pub fn barrier(&mut self, thread: Thread, barrier: Barrier) -> Result<(), Error> {
        self.begin(thread)?;
        self.barriers.arrive(&mut self.context, &mut self.coherence, thread, barrier)
    }

    /// Sends `value` of rank `root` to every rank. One thread of each rank calls it, in the same order in all ranks; the others' values
    /// are ignored. A resume with [`Outcome::Value`](crate::Outcome::Value) always follows.
    pub fn broadcast(&mut self, thread: Thread, root: Rank, value: u64) -> Result<(), Error> {
        self.begin(thread)?;
        self.barriers.broadcast(&mut self.context, &mut self.coherence, thread, root, value)
    }

    /// Barriers with waiting threads, as far as this rank knows: for messages about long waits. Allocates.
    #[must_use]
    pub fn waited_barriers(&self) -> Vec<WaitedBarrier> {
        self.barriers.waited_for(&self.context)
    }

    /// Whether a thread waits in a barrier or broadcast.
    #[must_use]
    pub fn is_in_barrier(&self, thread: Thread) -> bool {
        let wait = self.context.waits().get(usize::from(thread));
        matches!(wait, Some(Wait::Barrier(_)))
    }

    /// Sets how many threads of this rank take part in barriers; only between two barriers.
    pub fn set_participants(&mut self, participants: u16) -> Result<(), Error> {
        self.barriers.set_participants(&self.context, participants)
    }

    /// The next action; `None` if none is left. Carry them out strictly in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        match self.coherence.lazy() {
            None => self.context.poll_action(),
            Some(_) => self.poll_lazy(),
        }
    }

    /// Apart, so that the other protocol does not pay for it.
    #[inline(never)]
    fn poll_lazy(&mut self) -> Option<Action> {
        loop {
            if let Some(action) = self.coherence.lazy_mut()?.poll_action(&mut self.context) {
                return Some(action);
            }
            // What was released is in place: who waits for it may have it.
            match self.coherence.lazy_mut()?.poll_release()? {
                Release::Token { lock, to } => self.locks.send_token(&mut self.context, lock, to),
                Release::Arrival { barrier } => self.barriers.report(&mut self.context, &mut self.coherence, barrier),
            }
        }
    }

    /// Whether an action waits.
    #[must_use]
    #[inline]
    pub fn has_actions(&self) -> bool {
        self.context.has_actions() || self.coherence.has_work()
    }

    /// Whether [`handle_message`](Self::handle_message) needs the time for the message in these bytes. If not, any past time will do, and
    /// the machine need not read its clock.
    #[must_use]
    #[inline]
    pub fn needs_time(&self, bytes: &[u8]) -> bool {
        self.coherence.holds_any() || !Message::synchronises(bytes)
    }

    /// Encodes a message that `poll_action` returned for rank `to`, with its payload. Call it once for each message, in the order in which
    /// they were returned.
    #[inline]
    pub fn encode(&mut self, to: Rank, message: &Message) -> &[u8] {
        let mut length = message.encode(&mut self.bytes);
        if self.coherence.lazy().is_some() {
            length += self.encode_payload(to, message, length);
        }
        &self.bytes[..length]
    }

    /// Writes the payload of a message behind its fields, and returns its length.
    #[inline(never)]
    fn encode_payload(&mut self, to: Rank, message: &Message, fields: usize) -> usize {
        let payload = &mut self.bytes[fields..][..MAX_PAYLOAD_BYTES];
        if message.carries_payload() { self.coherence.payload(to, message, payload) } else { 0 }
    }

    /// Handles a message of another rank, with its payload, at time `now_ns` of this rank's monotonic clock. A message that a correct peer
    /// would not send is an error and changes nothing.
    pub fn handle_message(
        &mut self,
        now_ns: u64,
        from: Rank,
        message: Message,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        self.release_holds(now_ns);
        self.context.counters_mut().messages_received += 1;
        self.dispatch(from, message, payload).map_err(|violation| PeerError { from, violation })
    }

    /// Takes note that the bytes of an [`Action::Fetch`] are in place.
    pub fn handle_fetched(&mut self, page: u64) {
        if let Some(lazy) = self.coherence.lazy_mut() {
            lazy.handle_fetched(&mut self.context, page);
        }
    }

    /// Takes note of the bytes of a page that were found to differ as an [`Action::SendDiff`] was carried out: offset in the page and
    /// length of each range. Needed only if [`Config::finds_races`], before the next action.
    pub fn handle_changes(&mut self, page: u64, ranges: impl Iterator<Item = (u16, u16)>) {
        if let Some(lazy) = self.coherence.lazy_mut() {
            lazy.note_diff(&mut self.context, page, ranges);
        }
    }

    /// Two unordered writes that were found since the last call.
    pub fn poll_race(&mut self) -> Option<Race> {
        self.coherence.lazy_mut()?.poll_race()
    }

    fn dispatch(&mut self, from: Rank, message: Message, payload: &[u8]) -> Result<(), Violation> {
        let Dsm { context, coherence, locks, barriers, allocation, .. } = self;
        if from >= context.ranks() || from == context.rank() {
            return Err(Violation::Sender);
        }
        if !payload.is_empty() && !message.carries_payload() {
            return Err(Violation::Payload);
        }
        match message {
            Message::Register { minipage, thread } => {
                allocation::handle_register(context, coherence, from, minipage, thread, None)
            }
            Message::RegisterAt { minipage, thread, home } => {
                allocation::handle_register(context, coherence, from, minipage, thread, Some(home))
            }
            Message::Push { run } => coherence.handle_push(context, run),
            Message::RegisterUnits { units, thread } => {
                allocation::handle_register_units(context, coherence, from, units, thread)
            }
            Message::Registered { thread } => allocation::handle_registered(context, thread),
            Message::ChunkRequest { thread, need_pages, want_pages } => {
                allocation.handle_chunk_request(context, from, thread, need_pages, want_pages)
            }
            Message::ChunkGrant { thread, first_page, pages } => {
                allocation.handle_chunk_grant(context, coherence, from, thread, first_page, pages)
            }
            Message::ChunkRefuse { thread, left_pages } => {
                allocation.handle_chunk_refuse(context, coherence, from, thread, left_pages)
            }
            Message::LockRequest { lock } => locks.handle_request(context, coherence, from, lock, payload),
            Message::LockForward { lock, successor } => {
                locks.handle_forward(context, coherence, from, lock, successor, payload)
            }
            Message::LockToken { lock } => locks.handle_token(context, coherence, from, lock, payload),
            Message::BarrierArrive { round } => barriers.handle_arrival(context, coherence, from, round, payload),
            Message::BarrierRelease { round } => barriers.handle_release(context, coherence, from, round, payload),
            _ => coherence.handle_message(context, from, message, payload),
        }
    }

    /// Time at which [`release_holds`](Self::release_holds) must be called, if another rank waits for a minipage that a thread of this one
    /// was just granted; on the clock of `handle_message`.
    pub fn poll_hold(&self) -> Option<u64> {
        self.coherence.poll_hold()
    }

    /// Ends the holds on what was granted more than [`Config::hold_ns`] ago, and serves the requests that waited for it. `handle_message`
    /// and `handle_fault` do the same for the time they are given.
    pub fn release_holds(&mut self, now_ns: u64) {
        self.coherence.release_holds(&mut self.context, now_ns);
    }

    /// Begins an operation of a thread: checks that it exists and is idle, and ends its hold, since it has finished the access for which
    /// it was granted a minipage.
    fn begin(&mut self, thread: Thread) -> Result<(), Error> {
        self.context.begin(thread)?;
        if self.coherence.holds_any() {
            self.coherence.end_hold(&mut self.context, thread);
        }
        Ok(())
    }
}
