//! The event loop of a job, whatever it consists of: the ranks of this host ([`ranks`](super::ranks)), or the agents of several
//! ([`hosts`](super::hosts)). It forwards output, passes on signals, and decides how the job ends and with which exit code.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, getppid, wait};

use super::ending;
use super::group::Group;
use super::keeper::Link;
use super::seeing::{Wanted, Watch};
use super::signals::{self, Signals};
use super::sink::{Sink, lost_output};
use super::start::explain;
use crate::see::Sample;

/// Between SIGTERM and SIGKILL for ranks that must end.
pub(super) const KILL_GRACE: Duration = Duration::from_secs(3);
/// The terminal and the keeper may tell of one Ctrl-C both.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

const SIGNALS: u64 = 0;
const KEEPER: u64 = 1;
const WRITTEN: u64 = 2;
/// Events from here on are the crew's.
pub(super) const FIRST_TOKEN: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Agents are being started; they must have greeted by then.
    Starting(Instant),
    Running,
    /// Ranks were asked to end (SIGTERM); they are killed at this time.
    Ending(Instant),
    /// Ranks were killed; agents that have not ended by then are given up.
    Killed(Option<Instant>),
    /// All ranks have ended; processes that they left may finish their output until this time.
    Leftover(Instant),
    /// Nothing of the job is left but output that the user has not read.
    Flushing,
    Over,
}

/// The processes that a supervisor watches.
pub(super) trait Crew {
    /// Time to end in order, beyond [`KILL_GRACE`].
    const MORE_GRACE: Duration;

    fn advance(&mut self, supervisor: &mut Supervisor, now: Instant);
    /// When [`advance`](Self::advance) or [`serve`](Self::serve) want to be called at the latest.
    fn next_time(&self, phase: Phase, now: Instant) -> Option<Instant>;
    fn handle_event(&mut self, supervisor: &mut Supervisor, token: u64, now: Instant);
    /// Does what there is to do in every turn.
    fn serve(&mut self, supervisor: &mut Supervisor, now: Instant);
    fn handle_child(&mut self, supervisor: &mut Supervisor, pid: Pid, status: WaitStatus, now: Instant);
    /// Asks all to end, with this exit code of the job.
    fn begin_ending(&mut self, supervisor: &mut Supervisor, code: u8);
    fn kill(&mut self, supervisor: &mut Supervisor, now: Instant);
    /// Stops all, then this process until it is continued, and continues all.
    fn pause(&mut self);
    /// The members for a message, as in "ending 2 ranks".
    fn members(&self) -> String;
    /// Said when the keeper was killed.
    fn orphaned(&self) -> Option<&'static str>;
    fn samples(&self) -> Vec<Sample>;
    /// Called last, when the exit code is known.
    fn close(&mut self, supervisor: &mut Supervisor);
}

pub(crate) struct Ended {
    pub(crate) code: u8,
    /// The keeper was killed, so that what it does at the end is not done.
    pub(crate) keeper_is_gone: bool,
}

impl Ended {
    /// Nothing was started.
    pub(super) fn early(code: u8, keeper: Pid) -> Self {
        Self { code, keeper_is_gone: getppid() != Some(keeper) }
    }
}

pub(super) struct Supervisor {
    epoll: OwnedFd,
    signals: Signals,
    keeper: OwnedFd,
    /// This process's parent until the keeper is killed.
    keeper_pid: Pid,
    keeper_is_gone: bool,
    pub(super) group: Option<Group>,
    /// The user's stdout and stderr, or the way there.
    pub(super) sinks: [Sink; 2],
    pub(super) phase: Phase,
    pub(super) code: Option<u8>,
    last_signal: Option<(i32, Instant)>,
    watch: Option<Watch>,
    /// Before what this process says: the host, where it is an agent.
    prefix: String,
    said: RefCell<String>,
}

impl Supervisor {
    /// Begins to listen to signals and the keeper. Output goes to `sinks`, or to the user.
    pub(super) fn new(link: Link, sinks: Option<[Sink; 2]>, seeing: Option<Wanted>) -> Result<Self, String> {
        Self::try_new(link, sinks, seeing).map_err(|error| format!("cannot set up the event loop: {}", explain(&error)))
    }

    fn try_new(link: Link, sinks: Option<[Sink; 2]>, seeing: Option<Wanted>) -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(getpid()))?;
        let sinks = match sinks {
            Some(sinks) => sinks,
            None => [Sink::start(rustix::stdio::stdout())?, Sink::start(rustix::stdio::stderr())?],
        };
        let this = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            signals: link.signals,
            keeper: link.pipe,
            keeper_pid: link.keeper,
            keeper_is_gone: false,
            group: link.group,
            sinks,
            phase: Phase::Running,
            code: None,
            last_signal: None,
            watch: seeing.map(Watch::begin).transpose()?,
            prefix: String::new(),
            said: RefCell::default(),
        };
        this.listen(&this.signals, SIGNALS)?;
        this.listen(&this.keeper, KEEPER)?;
        this.listen(&this.sinks[0], WRITTEN)?;
        match this.listen(&this.sinks[1], WRITTEN) {
            // Both go the same way.
            Ok(()) | Err(Errno::EXIST) => Ok(this),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn speak_for(&mut self, host: &str) {
        self.prefix = format!("host {host}: ");
    }

    /// Passes events of `fd` to the crew as `token`.
    pub(super) fn listen(&self, fd: impl AsFd, token: u64) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    pub(super) fn forget(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, fd)
    }

    /// Tells the user something, between the ranks' lines.
    pub(super) fn say(&self, text: &str) {
        self.sinks[1].push(format!("mapwire: {}{text}\n", self.prefix).as_bytes());
        text.clone_into(&mut self.said.borrow_mut());
    }

    pub(super) fn said(&self) -> String {
        self.said.borrow().clone()
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Serves everything until the job is over and its output written.
    pub(super) fn run(mut self, crew: &mut impl Crew) -> Ended {
        self.work(crew);
        // A job whose output is not on the disk did not succeed, even where its last lines came after its ranks had ended.
        let lost = self.sinks.iter().find_map(Sink::lost);
        if let Some(errno) = lost.filter(|errno| *errno != Errno::PIPE && self.code.is_none()) {
            let (why, code) = lost_output(errno);
            eprintln!("mapwire: {why}");
            self.code = Some(code);
        }
        if let Some(watch) = self.watch.take() {
            let code = self.code.unwrap_or(0);
            if !watch.finish(&crew.samples(), code) && code == 0 {
                self.code = Some(1);
            }
        }
        crew.close(&mut self);
        // Of a process that is being killed, the pipe closes before its children have another parent.
        let keeper_is_gone = self.keeper_is_gone || getppid() != Some(self.keeper_pid);
        if keeper_is_gone && let Some(group) = &self.group {
            group.remove();
        }
        Ended { code: self.code.unwrap_or(0), keeper_is_gone }
    }

    fn work(&mut self, crew: &mut impl Crew) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(128);
        loop {
            let now = Instant::now();
            if self.advance(crew, now) {
                return;
            }
            let watch = self.watch.as_ref().and_then(Watch::poll_at);
            let next = [crew.next_time(self.phase, now), watch].into_iter().flatten().min();
            let wait = next.and_then(|at| Timespec::try_from(at.saturating_duration_since(now)).ok());
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    self.say(&format!("the event loop broke ({errno}); ending the job"));
                    self.code.get_or_insert(1);
                    ending::end_descendants(self.group.as_ref());
                    return;
                }
            }
            let now = Instant::now();
            for event in &events {
                let data = event.data;
                match data.u64() {
                    SIGNALS => self.handle_signals(crew, now),
                    KEEPER => self.handle_keeper(crew, now),
                    WRITTEN => self.sinks.iter().for_each(Sink::clear_event),
                    token => crew.handle_event(self, token, now),
                }
            }
            crew.serve(self, now);
            if let Some(watch) = &mut self.watch {
                watch.renew(now, || crew.samples());
            }
        }
    }

    /// Moves to the next phase if its time has come; `true` at the end of the job.
    fn advance(&mut self, crew: &mut impl Crew, now: Instant) -> bool {
        if self.phase == Phase::Running
            && let Some(errno) = self.sinks[0].lost()
        {
            let (why, code) = lost_output(errno);
            self.say(&format!("{why}; ending the job"));
            self.end(crew, code, now);
        }
        crew.advance(self, now);
        match self.phase {
            Phase::Flushing => self.sinks.iter().all(Sink::is_empty),
            Phase::Over => true,
            _ => false,
        }
    }

    /// Ends the job. The first cause decides the exit code.
    pub(super) fn end<C: Crew>(&mut self, crew: &mut C, code: u8, now: Instant) {
        self.code.get_or_insert(code);
        match self.phase {
            Phase::Starting(_) => crew.kill(self, now),
            Phase::Running => {
                self.phase = Phase::Ending(now + KILL_GRACE + C::MORE_GRACE);
                crew.begin_ending(self, code);
            }
            _ => {}
        }
    }

    /// Kills what is left of the job, whose exit code is this one if it has none yet.
    pub(super) fn kill(&mut self, crew: &mut impl Crew, code: u8, now: Instant) {
        self.code.get_or_insert(code);
        crew.kill(self, now);
    }

    fn handle_keeper(&mut self, crew: &mut impl Crew, now: Instant) {
        let mut bytes = [0; 16];
        match rustix::io::read(&self.keeper, &mut bytes) {
            Ok(0) => {
                self.keeper_is_gone = true;
                if let Some(text) = crew.orphaned() {
                    self.say(text);
                }
                let _ = self.forget(&self.keeper);
                self.kill(crew, 128 + libc::SIGKILL as u8, now);
            }
            Ok(count) => {
                for byte in &bytes[..count] {
                    self.handle_ending_signal(crew, i32::from(*byte), now);
                }
            }
            Err(_) => {}
        }
    }

    fn handle_signals(&mut self, crew: &mut impl Crew, now: Instant) {
        while let Some(signal) = self.signals.next() {
            match signal {
                libc::SIGCHLD => {
                    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
                    while let Ok(Some((pid, status))) = wait(options) {
                        crew.handle_child(self, pid, status, now);
                    }
                }
                libc::SIGTSTP => crew.pause(),
                // Left blocked: reading the terminal from the background is an error instead.
                libc::SIGTTIN | libc::SIGTTOU => {}
                signal => self.handle_ending_signal(crew, signal, now),
            }
        }
    }

    fn handle_ending_signal(&mut self, crew: &mut impl Crew, signal: i32, now: Instant) {
        let same = |(last, at): (i32, Instant)| last == signal && now < at + SAME_SIGNAL;
        if self.last_signal.is_some_and(same) {
            return;
        }
        self.last_signal = Some((signal, now));
        let code = 128 + signal as u8;
        match self.phase {
            Phase::Running if signal != libc::SIGQUIT => {
                let (name, members) = (signals::name(signal), crew.members());
                self.say(&format!("{name}: ending {members} (once more kills at once)"));
                self.end(crew, code, now);
            }
            Phase::Starting(_) | Phase::Running | Phase::Ending(_) => self.kill(crew, code, now),
            Phase::Killed(given_up) => self.phase = Phase::Killed(given_up.map(|_| now)),
            Phase::Leftover(_) => {
                self.code.get_or_insert(code);
                self.phase = Phase::Leftover(now);
            }
            Phase::Flushing => {
                // The user does not want the rest of the output.
                self.code.get_or_insert(code);
                self.phase = Phase::Over;
            }
            Phase::Over => {}
        }
    }
}
