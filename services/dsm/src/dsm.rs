//! The state of one rank, and the one place where messages are told apart.

use crate::action::Outbox;
use crate::allocator::{Arena, ChunkPool};
use crate::barriers::Barriers;
use crate::directory::Directory;
use crate::holds::Holds;
use crate::locks::Locks;
use crate::map::Map;
use crate::ranks::RankSets;
use crate::spread::Spread;
use crate::threads::{Request, Slot};
use crate::{
    Action, Config, ConfigError, Counters, Error, Message, Minipage, PeerError, Protection, Rank,
};
use crate::{Thread, Violation};
use alloc::vec;
use alloc::vec::Vec;

/// The shared-memory protocol of one rank.
///
/// Four kinds of method:
///
/// * **getters**: [`config`](Self::config), [`counters`](Self::counters), [`minipage_at`](Self::minipage_at),
///   [`manager`](Self::manager);
/// * **inputs of a thread**: [`handle_fault`](Self::handle_fault), [`prefetch`](Self::prefetch), [`alloc`](Self::alloc), [`lock`](Self::lock),
///   [`unlock`](Self::unlock), [`barrier`](Self::barrier), [`broadcast`](Self::broadcast). A thread does one at
///   a time: until it is resumed it gives no other input;
/// * **inputs of the machine**: [`handle_message`](Self::handle_message), [`release_holds`](Self::release_holds);
/// * **outputs**: [`poll_action`](Self::poll_action), [`poll_hold`](Self::poll_hold).
///
/// After every input, call `poll_action` until it yields nothing, and carry out each action before the next,
/// also before a thread whose operation was [`Progress::Done`](crate::Progress::Done) goes on. Then
/// `poll_hold` says by when `release_holds` must be called if no other input comes.
///
/// At the start every view is closed to the application ([`Protection::None`]) and all bytes are zero.
///
/// Memory is never freed: an allocation lasts as long as the job. The papers' programs allocate at their
/// start, and giving a view of a page back would need the consent of every rank that ever mapped it.
#[derive(Debug)]
pub struct Dsm {
    pub(crate) config: Config,
    pub(crate) spread: Spread,
    pub(crate) map: Map,
    pub(crate) directory: Directory,
    pub(crate) threads: Vec<Slot>,
    /// What this rank has asked for, by the number of the thread that leads; those ahead of any access come after the last thread.
    pub(crate) requests: Vec<Option<Request>>,
    /// The ranks that have acknowledged to each of them.
    pub(crate) ackers: RankSets,
    /// How many of them are ahead of any access.
    pub(crate) prefetches: u16,
    /// No thread from this one on ever did anything, so that most need not be looked at.
    pub(crate) used_threads: u16,
    pub(crate) holds: Holds,
    pub(crate) locks: Locks,
    pub(crate) barriers: Barriers,
    pub(crate) arena: Arena,
    pub(crate) chunks: ChunkPool,
    /// The thread whose request for pages is on its way to rank 0.
    pub(crate) chunk_asker: Option<Thread>,
    pub(crate) out: Outbox,
    /// The latest time that any input carried.
    pub(crate) now_ns: u64,
}

impl Dsm {
    /// A rank that holds nothing yet. Allocates all tables that it will ever use; those that grow with pages
    /// and views are zeroed memory, which the OS supplies as it is used.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let too_large = ConfigError::TooLarge {
            pages: config.pages,
            views: config.views,
        };
        let spread = Spread::new(config.ranks);
        let ranks = usize::from(config.ranks);
        let threads = usize::from(config.threads);
        let requests = usize::from(config.requests());
        let rows = config.pages.div_ceil(u32::from(config.ranks));
        Ok(Dsm {
            config,
            spread,
            map: Map::new(config.pages, config.views).ok_or(too_large)?,
            directory: Directory::new(rows, config.views, config.ranks, config.requests())
                .ok_or(too_large)?,
            threads: (0..threads).map(|_| Slot::default()).collect(),
            requests: vec![None; requests],
            ackers: RankSets::new(requests, config.ranks).ok_or(too_large)?,
            prefetches: 0,
            used_threads: 0,
            holds: Holds::new(threads),
            locks: Locks::new(&config),
            barriers: Barriers::new(&config).ok_or(too_large)?,
            arena: Arena::new(config.views),
            chunks: ChunkPool::new(if config.rank == 0 { config.pages } else { 0 }),
            chunk_asker: None,
            out: Outbox::new(16 + 4 * (ranks + requests) + 2 * ranks * requests),
            now_ns: 0,
        })
    }

    /// The shape this rank was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What this rank did so far.
    pub fn counters(&self) -> Counters {
        self.out.counters
    }

    /// The minipage that covers a page of a view, as far as this rank has met it, and what the application may
    /// do with it here. Pages are those of the segment; a small minipage's neighbours are in other views.
    pub fn minipage_at(&self, view: u16, page: u64) -> Option<(Minipage, Protection)> {
        if view >= self.config.views || page >= u64::from(self.config.pages) {
            return None;
        }
        self.map.lookup(view, page as u32)
    }

    /// The rank that manages the minipages starting on that page; `None` outside the segment.
    pub fn manager(&self, page: u64) -> Option<Rank> {
        (page < u64::from(self.config.pages)).then(|| self.spread.manager(page as u32))
    }

    /// The next thing to do; `None` when nothing is left. Strictly in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.poll()
    }

    /// Whether [`handle_message`](Self::handle_message) needs the time for a message, which costs the machine a
    /// look at its clock. If not, any time that is past will do.
    #[must_use]
    #[inline]
    pub fn needs_time(&self, message: &Message) -> bool {
        let holds_nothing = matches!(
            message,
            Message::LockRequest { .. }
                | Message::LockForward { .. }
                | Message::LockToken { .. }
                | Message::BarrierArrive { .. }
                | Message::BarrierRelease { .. }
        );
        self.holds.any() || !holds_nothing
    }

    /// Handles a message of another rank, at time `now_ns` of this rank's monotonic clock. A message that a
    /// correct peer would not send is an error and changes nothing.
    pub fn handle_message(
        &mut self,
        now_ns: u64,
        from: Rank,
        message: Message,
    ) -> Result<(), PeerError> {
        self.release_holds(now_ns);
        self.out.counters.messages_received += 1;
        self.dispatch(from, message)
            .map_err(|violation| PeerError { from, violation })
    }

    fn dispatch(&mut self, from: Rank, message: Message) -> Result<(), Violation> {
        if from >= self.config.ranks || from == self.config.rank {
            return Err(Violation::Sender);
        }
        match message {
            Message::Request {
                thread,
                view,
                page,
                access,
            } => self.handle_request(from, thread, self.checked_key(view, page)?, access),
            Message::Refuse { thread, view, page } => {
                self.handle_refuse(from, thread, self.checked_key(view, page)?)
            }
            Message::Forward {
                minipage,
                requester,
                thread,
                access,
                acks,
            } => self.handle_forward(from, minipage, requester, thread, access, acks),
            Message::Grant {
                minipage,
                thread,
                access,
                acks,
                data,
                done,
            } => self.handle_grant(from, minipage, thread, access, acks, data, done),
            Message::Invalidate {
                view,
                page,
                requester,
                thread,
            } => self.handle_invalidate(from, self.checked_key(view, page)?, requester, thread),
            Message::InvalidateAck { thread, view, page } => {
                self.handle_invalidate_ack(from, thread, self.checked_key(view, page)?)
            }
            Message::Done { thread, view, page } => {
                self.handle_done(from, thread, self.checked_key(view, page)?)
            }
            Message::Register { minipage, thread } => self.handle_register(from, minipage, thread),
            Message::Registered { thread } => self.handle_registered(thread),
            Message::ChunkRequest {
                thread,
                need_pages,
                want_pages,
            } => self.handle_chunk_request(from, thread, need_pages, want_pages),
            Message::ChunkGrant {
                thread,
                first_page,
                pages,
            } => self.handle_chunk_grant(from, thread, first_page, pages),
            Message::ChunkRefuse { thread, left_pages } => {
                self.handle_chunk_refuse(from, thread, left_pages)
            }
            Message::LockRequest { lock } => self.handle_lock_request(from, lock),
            Message::LockForward { lock, successor } => {
                self.handle_lock_forward(from, lock, successor)
            }
            Message::LockToken { lock } => self.handle_lock_token(lock),
            Message::BarrierArrive {
                barrier,
                epoch,
                root,
                value,
            } => self.handle_barrier_arrive(from, barrier, epoch, root, value),
            Message::BarrierRelease {
                barrier,
                epoch,
                root,
                value,
            } => self.handle_barrier_release(from, barrier, epoch, root, value),
        }
    }

    /// Begins an operation of a thread: it exists, waits for nothing, and has finished the access for which it
    /// was granted a minipage.
    pub(crate) fn begin(&mut self, thread: Thread) -> Result<(), Error> {
        match self.threads.get(usize::from(thread)) {
            None => {
                return Err(Error::UnknownThread {
                    thread,
                    threads: self.config.threads,
                });
            }
            Some(slot) if !slot.is_idle() => return Err(Error::ThreadBusy { thread }),
            Some(_) => {}
        }
        self.used_threads = self.used_threads.max(thread + 1);
        self.end_hold(thread);
        Ok(())
    }
}
