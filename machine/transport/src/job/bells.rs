//! The bells of a rank of a job: its words on the board, and the descriptors that are watched for packets that no bell is rung for.

use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use mapwire_host::masking;
use mapwire_host::waiting::{EitherWait, Woken};
use mapwire_wire::NodeId;

use crate::bells::{Sleeper, Slept, Wake};
use crate::board::{Board, Figures, RankState};
use crate::fabric::Doorbells;
use crate::net::{Alarm, NetError};
use crate::rousing::Rousing;

/// The board, with the rank whose threads sleep by it.
#[derive(Debug)]
pub struct JobBells {
    board: Arc<Board>,
    rank: u32,
    rousing: Rousing,
    /// `None` where nothing is watched.
    alarm: Option<Alarm>,
    /// Lets a thread sleep on its bell and on the sockets at once, if the kernel can do that.
    either: Option<Mutex<EitherWait>>,
    /// libfabric's descriptor is watched: a thread in the page-fault handler must leave what comes to others.
    is_libfabric: bool,
}

impl Doorbells for JobBells {
    #[inline]
    fn enter_polling(&self) {
        self.board.enter_polling(self.rank);
    }

    #[inline]
    fn keep_polling(&self) {
        self.board.keep_polling(self.rank);
    }

    #[inline]
    fn leave_polling(&self) -> bool {
        let is_last = self.board.leave_polling(self.rank);
        if is_last && let Some(alarm) = &self.alarm {
            if !masking::is_library_thread() {
                alarm.count_leave();
            }
            alarm.handle_left();
        }
        is_last
    }

    fn is_polling(&self) -> bool {
        self.board.is_polling()
    }

    #[inline]
    fn ring(&self, peer: NodeId) {
        let peer = u32::from(peer.0);
        self.rousing.handle_rung(peer, self.board.ring(peer));
    }

    #[inline]
    fn hint(&self, peer: NodeId) {
        let peer = u32::from(peer.0);
        self.rousing.handle_rung(peer, self.board.hint(peer));
    }

    fn rouse(&self, peer: NodeId) {
        let peer = u32::from(peer.0);
        if self.rousing.is_wise() && self.board.rouse(peer) {
            self.rousing.handle_roused(peer);
        }
    }

    fn wake(&self, peer: NodeId, who: Wake) {
        self.board.wake(u32::from(peer.0), who);
    }

    fn service_rings(&self) -> u32 {
        self.board.service_rings(self.rank)
    }

    fn sleep(
        &self,
        sleeper: Sleeper,
        mut recheck: impl FnMut(bool) -> bool,
        timeout: Option<Duration>,
        nap: impl FnMut() -> Duration,
    ) -> Slept {
        let Some(alarm) = &self.alarm else {
            return self.board.sleep(self.rank, sleeper, recheck, timeout, nap);
        };
        let may_attend = !(self.is_libfabric && masking::is_in_fault_handler());
        if sleeper == Sleeper::Waiting
            && may_attend
            && let Some(mut either) = self.attend()
        {
            alarm.begin_attending();
            let wait = |bell: &AtomicU32, seen, limit| {
                let woken = either.wait(bell, seen, limit);
                if woken == Woken::Woken {
                    alarm.set_due();
                }
                woken
            };
            let slept = (self.board).sleep_by(wait, self.rank, sleeper, recheck, timeout, nap);
            alarm.end_attending();
            return slept;
        }
        let recheck = |was_nap| {
            // What comes from here on rings, whatever the thread does next.
            let found = recheck(was_nap);
            match sleeper {
                Sleeper::Waiting => alarm.arm(self.board.is_polling()),
                Sleeper::Service => alarm.arm_for_service(self.board.is_polling()),
            }
            found
        };
        self.board.sleep(self.rank, sleeper, recheck, timeout, nap)
    }

    fn state(&self, peer: NodeId) -> RankState {
        self.board.state(u32::from(peer.0))
    }

    fn show_openings(&self, count: u32) {
        self.board.show_openings(self.rank, count);
    }

    fn openings(&self, peer: NodeId) -> Option<u32> {
        let (peer, board) = (u32::from(peer.0), &self.board);
        (board.host(peer) == board.host(self.rank)).then(|| board.openings(peer))
    }

    fn board(&self) -> Option<&Arc<Board>> {
        Some(&self.board)
    }

    fn publish(&self, figures: &Figures) {
        self.board.publish(self.rank, figures);
    }
}

impl JobBells {
    /// The bells of `rank`. `fds` tell of packets that no bell is rung for: libfabric's, or sockets.
    ///
    /// # Errors
    /// No thread or descriptor is left to watch them.
    pub(super) fn new(
        board: Arc<Board>,
        rank: u32,
        fds: &[BorrowedFd<'_>],
        is_libfabric: bool,
    ) -> Result<Self, NetError> {
        let mut bells = Self { board, rank, rousing: Rousing::default(), alarm: None, either: None, is_libfabric };
        if !fds.is_empty() {
            let (rung, polled) = (Arc::clone(&bells.board), Arc::clone(&bells.board));
            let ring = move || {
                if !is_libfabric {
                    rung.ring(rank);
                } else if !rung.is_polling() {
                    // A thread that waits in the page-fault handler may not take what has come.
                    rung.wake(rank, Wake::All);
                }
            };
            let alarm = Alarm::start(fds, ring, move || polled.is_polling());
            bells.alarm = Some(alarm.map_err(NetError::Watch)?);
            bells.either = EitherWait::new(fds).map(Mutex::new);
        }
        Ok(bells)
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether the watched descriptors have had something since they were last looked at.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.alarm.as_ref().is_some_and(Alarm::is_due)
    }

    /// Called before the watched descriptors are looked at.
    #[inline]
    pub(super) fn begin_look(&self) {
        if let Some(alarm) = &self.alarm {
            alarm.begin_look();
        }
    }

    /// Takes the place of the thread that sleeps on the sockets, unless another has it.
    fn attend(&self) -> Option<MutexGuard<'_, EitherWait>> {
        match self.either.as_ref()?.try_lock() {
            Ok(either) => Some(either),
            Err(TryLockError::Poisoned(either)) => Some(either.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
