//! The event loop of a job: children, signals, the broker, and output.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

use mapwire_host::sparing::Sparing;
use mapwire_transport::board::RankState;
use mapwire_transport::rendezvous::Broker;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpgid, getpid, getppid, kill_process, kill_process_group, wait};

use super::Job;
use super::ending::{self, RankEnd};
use super::group::Group;
use super::hosts::{Order, Uplink};
use super::keeper::Link;
use super::lines::Lines;
use super::names::{Heard, Membership};
use super::oom::OomKills;
use super::seeing::{Wanted, Watch};
use super::signals::{self, Signals};
use super::sink::{Sink, lost_output};
use super::start;
use crate::see::Sample;

/// Between SIGTERM and SIGKILL for ranks that must end.
pub(super) const KILL_GRACE: Duration = Duration::from_secs(3);
/// What ranks started and left behind may take to finish its output, after a clean end.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// The terminal and the keeper may tell of one Ctrl-C both.
pub(super) const SAME_SIGNAL: Duration = Duration::from_millis(100);

const SIGNALS: u64 = 0;
const KEEPER: u64 = 1;
const BROKER: u64 = 2;
const WRITTEN: u64 = 3;
const UPLINK: u64 = 4;
const NAMES: u64 = 5;
const PIPES: u64 = 8;

/// One output pipe of a rank.
pub(super) struct Pipe {
    fd: OwnedFd,
    lines: Lines,
    watched: bool,
}

impl Pipe {
    pub(super) fn new(fd: OwnedFd, rank: u32, tag: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd, lines: Lines::new(rank, tag), watched: false })
    }
}

/// The stops of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StopsOf(u32);

impl fmt::Display for StopsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stops of rank {}", self.0)
    }
}

/// One rank as the launcher sees it.
pub(super) struct Rank {
    pub(super) pid: Pid,
    /// Standard output and standard error, until their ends.
    pub(super) pipes: [Option<Pipe>; 2],
    pub(super) end: Option<RankEnd>,
    pub(super) stopped_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Ranks were asked to end (SIGTERM); they are killed at this time.
    Ending(Instant),
    /// Ranks were killed.
    Killed,
    /// All ranks have ended; what they left may finish its output until this time.
    Leftover(Instant),
    /// Nothing of the job is left but output that the user has not read.
    Flushing,
    /// Nothing is left to be done.
    Over,
}

pub(super) struct Launcher {
    pub(super) broker: Broker,
    /// Those of this host, in their order.
    pub(super) ranks: Vec<Rank>,
    /// The number of the first.
    first: u32,
    /// The way to who started this launcher on another host.
    uplink: Option<Uplink>,
    watch: Option<Watch>,
    /// The membership of a job whose other ranks other commands start.
    pub(super) named: Option<Membership>,
    /// What the user was told last.
    said: RefCell<String>,
    epoll: OwnedFd,
    signals: Signals,
    keeper: OwnedFd,
    keeper_is_gone: bool,
    /// The ranks' control group, where there is one.
    pub(super) group: Option<Group>,
    /// The user's stdout and stderr.
    sinks: [Sink; 2],
    phase: Phase,
    code: Option<u8>,
    stop_grace: Duration,
    last_signal: Option<(i32, Instant)>,
    /// Lines of stops, of which a rank can have any number.
    stops: Sparing<StopsOf>,
    oom_kills: OomKills,
    buffer: Vec<u8>,
    lines: Vec<u8>,
}

/// How a job ended.
pub(crate) struct Ended {
    /// The exit code.
    pub(crate) code: u8,
    /// The keeper was killed, so that what it does at the end is not done.
    pub(crate) keeper_is_gone: bool,
}

/// Runs the job. When it returns, no process of the job is left.
pub(crate) fn run(job: Job, link: Link) -> Ended {
    run_with(job, link, None).0
}

/// Runs a job, or the part of it on this host, and gives the uplink back where it could be used.
pub(super) fn run_with(mut job: Job, link: Link, uplink: Option<Uplink>) -> (Ended, Option<Uplink>) {
    let keeper = link.keeper;
    let seeing = job.seeing.take();
    let named = match job.meeting.take().map(|meeting| meeting.join(&link)) {
        None => None,
        Some(Ok((membership, place))) => {
            job.place = place;
            Some(membership)
        }
        Some(Err(code)) => {
            let ended = Ended { code, keeper_is_gone: getppid() != Some(keeper) };
            return (ended, None);
        }
    };
    let mut launcher = match Launcher::prepare(&job, link, uplink, seeing, named) {
        Ok(launcher) => launcher,
        Err(why) => {
            eprintln!("mapwire: {why}");
            let ended = Ended { code: 1, keeper_is_gone: getppid() != Some(keeper) };
            return (ended, None);
        }
    };
    if let Err((code, why)) = start::ranks(&mut launcher, &job) {
        launcher.say(&why);
        launcher.code = Some(code);
        launcher.tell_members(code);
        launcher.kill_ranks();
    }
    launcher.work();
    launcher.check_output();
    if let Some(watch) = launcher.watch.take() {
        let code = launcher.code.unwrap_or(0);
        if !watch.finish(&launcher.samples(), code) && code == 0 {
            launcher.code = Some(1);
        }
    }
    if let Some(uplink) = &mut launcher.uplink {
        uplink.tell_figures(&launcher.broker);
    }
    // However it came to this, who leaves without a word has ended well.
    if let Some(code) = launcher.code.filter(|code| *code != 0) {
        launcher.tell_members(code);
    }
    if let Some(membership) = launcher.named.take() {
        membership.leave();
    }
    tracing::debug!(stats = ?launcher.broker.stats(), "the job is over");
    // Of a process that is being killed, the pipe closes before its children have another parent.
    let keeper_is_gone = launcher.keeper_is_gone || getppid() != Some(keeper);
    if keeper_is_gone && let Some(group) = &launcher.group {
        group.remove();
    }
    let ended = Ended { code: launcher.code.unwrap_or(0), keeper_is_gone };
    (ended, launcher.uplink)
}

impl Launcher {
    fn prepare(
        job: &Job,
        link: Link,
        uplink: Option<Uplink>,
        seeing: Option<Wanted>,
        named: Option<Membership>,
    ) -> Result<Self, String> {
        start::raise_descriptor_limit(job.place.ranks.len() as u32);
        rustix::process::set_child_subreaper(Some(getpid()))
            .map_err(|errno| format!("cannot become a child subreaper: {errno}"))?;
        let broker = start::broker(job)?;
        let loop_error = |error: io::Error| format!("cannot set up the event loop: {}", start::explain(&error));
        let os = |errno: Errno| loop_error(errno.into());
        let watch = seeing.map(Watch::begin).transpose().map_err(loop_error)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os)?;
        let sinks = match &uplink {
            Some(uplink) => uplink.sinks(),
            None => [
                Sink::start(rustix::stdio::stdout()).map_err(loop_error)?,
                Sink::start(rustix::stdio::stderr()).map_err(loop_error)?,
            ],
        };
        let listen =
            |fd: BorrowedFd<'_>, token| epoll::add(&epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN);
        listen(link.signals.as_fd(), SIGNALS).map_err(os)?;
        listen(link.pipe.as_fd(), KEEPER).map_err(os)?;
        listen(broker.as_fd(), BROKER).map_err(os)?;
        listen(sinks[0].as_fd(), WRITTEN).map_err(os)?;
        if let Some(membership) = &named {
            listen(membership.as_fd(), NAMES).map_err(os)?;
        }
        match &uplink {
            // Both go the same way.
            Some(uplink) => listen(uplink.input(), UPLINK),
            None => listen(sinks[1].as_fd(), WRITTEN),
        }
        .map_err(os)?;
        Ok(Self {
            broker,
            ranks: Vec::new(),
            first: job.place.ranks.start,
            uplink,
            watch,
            named,
            said: RefCell::default(),
            epoll,
            signals: link.signals,
            keeper: link.pipe,
            keeper_is_gone: false,
            group: link.group,
            sinks,
            phase: Phase::Running,
            code: None,
            stop_grace: job.settings.stop_grace,
            last_signal: None,
            stops: Sparing::default(),
            oom_kills: OomKills::now(),
            buffer: vec![0; 64 * 1024],
            lines: Vec::new(),
        })
    }

    /// Tells the user something, between the ranks' lines.
    pub(super) fn say(&self, text: &str) {
        let host = self.uplink.as_ref().map(Uplink::host);
        let host = host.map_or_else(String::new, |host| format!("host {host}: "));
        self.sinks[1].push(format!("mapwire: {host}{text}\n").as_bytes());
        text.clone_into(&mut self.said.borrow_mut());
    }

    /// Tells the other members of a named job that this one ends it, for the reason that the user was told.
    fn tell_members(&self, code: u8) {
        if let Some(membership) = &self.named {
            membership.abort(code, &self.said.borrow());
        }
    }

    fn hear_members(&mut self, now: Instant) {
        while let Some(heard) = self.named.as_ref().and_then(Membership::poll_heard) {
            match heard {
                Heard::Notice(text) => self.say(&text),
                Heard::End(text, code) if self.phase == Phase::Running => {
                    self.say(&format!("{text}; ending the ranks here"));
                    self.begin_ending(code, now);
                }
                Heard::End(..) => {}
            }
        }
    }

    /// Serves everything until the job is over and its output written.
    fn work(&mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(128);
        loop {
            self.watch_pipes();
            let now = Instant::now();
            if self.advance(now) {
                return;
            }
            let wait = self.next_time(now).map(|t| {
                let left = t.saturating_duration_since(now);
                rustix::time::Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(left.subsec_nanos()),
                }
            });
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
                    SIGNALS => self.handle_signals(now),
                    KEEPER => self.handle_keeper(now),
                    // Served below, in every turn.
                    BROKER | UPLINK | NAMES => {}
                    WRITTEN => self.sinks.iter().for_each(Sink::clear_event),
                    token => {
                        let at = (token - PIPES) as usize;
                        self.read_pipe(at / 2, at % 2, 16);
                    }
                }
            }
            self.broker.handle_ready(now);
            self.serve_uplink(now);
            self.hear_members(now);
            self.renew_watch(now);
        }
    }

    /// What ranks of this host read as rank 0.
    pub(super) fn stdin_of_rank_0(&mut self) -> Stdio {
        let Some(uplink) = &mut self.uplink else {
            return start::stdin_of_rank_0();
        };
        match pipe_with(PipeFlags::CLOEXEC) {
            Ok((reader, writer)) => match uplink.pour_into(writer) {
                Ok(()) => reader.into(),
                Err(_) => start::nothing(),
            },
            Err(_) => start::nothing(),
        }
    }

    fn serve_uplink(&mut self, now: Instant) {
        let Some(uplink) = &mut self.uplink else {
            return;
        };
        for order in uplink.serve(&mut self.broker, now) {
            match order {
                Order::End(code) => self.begin_ending(code, now),
                Order::Kill => {
                    self.code.get_or_insert(128 + libc::SIGKILL as u8);
                    self.kill_ranks();
                }
                Order::Stop => self.signal_ranks(Signal::STOP),
                Order::Continue => self.signal_ranks(Signal::CONT),
                Order::HeadIsGone => {
                    let _ = epoll::delete(&self.epoll, rustix::stdio::stdin());
                    self.code.get_or_insert(128 + libc::SIGKILL as u8);
                    self.kill_ranks();
                }
            }
        }
    }

    /// The ranks here, as they are.
    fn samples(&self) -> Vec<Sample> {
        let ranks = (self.first..).take(self.ranks.len());
        ranks.map(|rank| Sample::of(self.broker.board(), rank)).collect()
    }

    fn renew_watch(&mut self, now: Instant) {
        if let Some(mut watch) = self.watch.take() {
            watch.renew(now, || self.samples());
            self.watch = Some(watch);
        }
    }

    fn next_time(&self, now: Instant) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Ending(at) | Phase::Leftover(at) => Some(at),
            _ => None,
        };
        let stops = self.live().filter_map(|r| r.stopped_at).map(|t| t + self.stop_grace);
        let stops = if self.phase == Phase::Running { stops.min() } else { None };
        let uplink = self.uplink.as_ref().map(Uplink::poll_at);
        let watch = self.watch.as_ref().and_then(Watch::poll_at);
        let (broker, said) = (self.broker.poll_at(now), self.stops.poll_at());
        [phase, stops, uplink, watch, broker, said].into_iter().flatten().min()
    }

    /// Moves to the next phase if its time has come; `true` at the end of the job.
    fn advance(&mut self, now: Instant) -> bool {
        if self.phase == Phase::Running
            && let Some(errno) = self.sinks[0].lost()
        {
            let (why, code) = lost_output(errno);
            self.say(&format!("{why}; ending the job"));
            self.begin_ending(code, now);
        }
        if self.phase == Phase::Running {
            self.check_stopped(now);
        }
        while let Some(left_out) = self.stops.poll(now) {
            self.say(&left_out.to_string());
        }
        match self.phase {
            Phase::Running | Phase::Ending(_) | Phase::Killed if self.live().count() == 0 => {
                let clean = self.phase == Phase::Running;
                self.phase = Phase::Leftover(if clean { now + LEFTOVER_GRACE } else { now });
                self.advance(now)
            }
            Phase::Ending(at) if now >= at => {
                let late: Vec<String> = self.numbers(|r| r.end.is_none());
                self.say(&format!(
                    "rank {} did not end within {} s of SIGTERM; killing",
                    late.join(", "),
                    KILL_GRACE.as_secs()
                ));
                self.kill_ranks();
                false
            }
            Phase::Leftover(at) if now >= at || self.pipes_are_closed() => {
                if !ending::end_descendants(self.group.as_ref()) {
                    self.say("a process of the job does not die, even by SIGKILL");
                }
                for rank in 0..self.ranks.len() {
                    self.read_pipe(rank, 0, usize::MAX);
                    self.read_pipe(rank, 1, usize::MAX);
                    self.close_pipe(rank, 0);
                    self.close_pipe(rank, 1);
                }
                for left_out in std::mem::take(&mut self.stops).finish() {
                    self.say(&left_out.to_string());
                }
                self.phase = Phase::Flushing;
                self.advance(now)
            }
            Phase::Flushing => self.sinks.iter().all(Sink::is_empty),
            Phase::Over => true,
            _ => false,
        }
    }

    /// A job whose output is not on the disk did not succeed, even where its last lines came after its ranks had ended.
    fn check_output(&mut self) {
        let lost = self.sinks.iter().find_map(Sink::lost);
        if let Some(errno) = lost.filter(|errno| *errno != Errno::PIPE && self.code.is_none()) {
            let (why, code) = lost_output(errno);
            eprintln!("mapwire: {why}");
            self.code = Some(code);
        }
    }

    fn live(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().filter(|r| r.end.is_none())
    }

    fn numbers(&self, wanted: impl Fn(&Rank) -> bool) -> Vec<String> {
        let all = self.ranks.iter().enumerate();
        all.filter(|(_, r)| wanted(r)).map(|(n, _)| self.number_of(n).to_string()).collect()
    }

    /// The rank that stands at `at` in the list.
    fn number_of(&self, at: usize) -> u32 {
        self.first + at as u32
    }

    fn signal_ranks(&self, signal: Signal) {
        for rank in self.live() {
            // Not reaped yet, so the number is still this group's and this process's.
            let is_elsewhere = getpgid(Some(rank.pid)) != Ok(rank.pid);
            let _ = kill_process_group(rank.pid, signal);
            if is_elsewhere || signal == Signal::KILL {
                let _ = kill_process(rank.pid, signal);
            }
        }
    }

    /// Asks all ranks to end. The first cause decides the exit code.
    fn begin_ending(&mut self, code: u8, now: Instant) {
        self.code.get_or_insert(code);
        if self.phase == Phase::Running {
            self.phase = Phase::Ending(now + KILL_GRACE);
            if let Some(uplink) = &self.uplink {
                uplink.tell_end(code);
            }
            self.tell_members(code);
            self.signal_ranks(Signal::TERM);
            // A stopped process sees the signal only when it continues.
            self.signal_ranks(Signal::CONT);
        }
    }

    fn kill_ranks(&mut self) {
        self.phase = Phase::Killed;
        self.signal_ranks(Signal::KILL);
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    fn check_stopped(&mut self, now: Instant) {
        let late = |r: &Rank| r.stopped_at.is_some_and(|t| now >= t + self.stop_grace);
        let late = self.numbers(|r| r.end.is_none() && late(r));
        if !late.is_empty() {
            self.say(&format!(
                "rank {} is stopped for more than {} s (--stop-grace), so its peers wait in vain; ending the job",
                late.join(", "),
                self.stop_grace.as_secs_f32()
            ));
            self.begin_ending(128 + libc::SIGSTOP as u8, now);
        }
    }

    fn handle_keeper(&mut self, now: Instant) {
        let mut bytes = [0; 16];
        match rustix::io::read(&self.keeper, &mut bytes) {
            Ok(0) => {
                // Nobody waits for this job any more, but perhaps the head.
                self.keeper_is_gone = true;
                if self.uplink.is_some() {
                    self.say("the agent was killed; ending the job");
                } else if self.named.is_some() {
                    self.say("the command was killed; ending the job");
                }
                self.code.get_or_insert(128 + libc::SIGKILL as u8);
                let _ = epoll::delete(&self.epoll, &self.keeper);
                self.kill_ranks();
            }
            Ok(count) => {
                for byte in &bytes[..count] {
                    self.handle_ending_signal(i32::from(*byte), now);
                }
            }
            Err(_) => {}
        }
    }

    fn handle_signals(&mut self, now: Instant) {
        while let Some(signal) = self.signals.next() {
            match signal {
                libc::SIGCHLD => self.reap(now),
                libc::SIGTSTP => self.pause(),
                // Left blocked: reading the terminal from the background is an error instead.
                libc::SIGTTIN | libc::SIGTTOU => {}
                signal => self.handle_ending_signal(signal, now),
            }
        }
    }

    fn handle_ending_signal(&mut self, signal: i32, now: Instant) {
        let same = |(last, at): (i32, Instant)| last == signal && now < at + SAME_SIGNAL;
        if self.last_signal.is_some_and(same) {
            return;
        }
        self.last_signal = Some((signal, now));
        let code = 128 + signal as u8;
        match self.phase {
            Phase::Running if signal != libc::SIGQUIT => {
                self.say(&format!(
                    "{}: ending {} (once more kills at once)",
                    signals::name(signal),
                    ranks_text(self.live().count())
                ));
                self.begin_ending(code, now);
            }
            Phase::Running | Phase::Ending(_) => {
                self.code.get_or_insert(code);
                self.kill_ranks();
            }
            Phase::Killed => {}
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

    /// Ctrl-Z: ranks are in groups of their own, so they are stopped and continued by hand.
    fn pause(&mut self) {
        self.signal_ranks(Signal::STOP);
        signals::stop_here();
        self.signal_ranks(Signal::CONT);
    }

    fn reap(&mut self, now: Instant) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        while let Ok(Some((pid, status))) = wait(options) {
            let Some(number) = self.ranks.iter().position(|r| r.pid == pid) else {
                // An orphan that a rank left.
                continue;
            };
            if let Some(end) = RankEnd::of(status) {
                self.handle_end(number, end, now);
            } else if let Some(signal) = status.stopping_signal() {
                self.handle_stop(number, signal, now);
            } else {
                self.ranks[number].stopped_at = None;
                let rank = self.number_of(number);
                self.broker.handle_rank_continued(rank);
            }
        }
    }

    fn handle_stop(&mut self, number: usize, signal: i32, now: Instant) {
        self.ranks[number].stopped_at.get_or_insert(now);
        let rank = self.number_of(number);
        self.broker.handle_rank_stopped(rank);
        if self.phase == Phase::Running && self.stops.admit(StopsOf(rank), now) {
            let pid = self.ranks[number].pid.as_raw_nonzero();
            self.say(&format!(
                "rank {rank} (process {pid}) was stopped by {}; the job ends in {} s unless it continues: kill -CONT {pid}",
                signals::name(signal),
                self.stop_grace.as_secs_f32()
            ));
        }
    }

    fn handle_end(&mut self, number: usize, end: RankEnd, now: Instant) {
        let rank = self.number_of(number);
        let joined = self.broker.has_joined(rank);
        let left = self.broker.board().state(rank) == RankState::Left;
        self.broker.handle_rank_exited(rank, end.is_clean(), now);
        self.ranks[number].end = Some(end);
        self.ranks[number].stopped_at = None;
        mapwire_transport::ofi::remove_leftovers(self.ranks[number].pid.as_raw_nonzero().get() as u32);
        // Its last words come before what is said of it.
        self.read_pipe(number, 0, 16);
        self.read_pipe(number, 1, 16);
        if end.is_clean() {
            if joined && !left {
                tracing::info!("rank {rank} ended without leaving the job");
            }
            return;
        }
        if self.phase == Phase::Running {
            let pid = self.ranks[number].pid.as_raw_nonzero();
            let others = match self.live().count() {
                _ if self.uplink.is_some() || self.named.is_some() => "; ending the job".to_owned(),
                0 => String::new(),
                count => format!("; ending the other {}", ranks_text(count)),
            };
            // Nobody here has killed a rank yet.
            let why = match end {
                RankEnd::Killed(libc::SIGKILL) => self.oom_kills.reason(),
                _ => None,
            };
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            self.say(&format!("rank {rank} (process {pid}) {end}{why}{others}"));
            self.begin_ending(end.exit_code(), now);
        }
    }

    /// Reads ranks' pipes whose sink has room, and leaves the others to fill.
    fn watch_pipes(&mut self) {
        let room = [!self.sinks[0].is_full(), !self.sinks[1].is_full()];
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            for (stream, pipe) in rank.pipes.iter_mut().enumerate() {
                let Some(pipe) = pipe else { continue };
                if pipe.watched == room[stream] {
                    continue;
                }
                let data = epoll::EventData::new_u64(PIPES + (number * 2 + stream) as u64);
                let outcome = if room[stream] {
                    epoll::add(&self.epoll, &pipe.fd, data, epoll::EventFlags::IN)
                } else {
                    epoll::delete(&self.epoll, &pipe.fd)
                };
                if outcome.is_ok() {
                    pipe.watched = room[stream];
                }
            }
        }
    }

    fn read_pipe(&mut self, number: usize, stream: usize, limit: usize) {
        let Some(rank) = self.ranks.get_mut(number) else {
            return;
        };
        let mut ended = false;
        self.lines.clear();
        for _ in 0..limit {
            let Some(pipe) = rank.pipes[stream].as_mut() else {
                break;
            };
            match rustix::io::read(&pipe.fd, &mut self.buffer[..]) {
                // A terminal ends with an error.
                Ok(0) | Err(Errno::IO) => {
                    ended = true;
                    break;
                }
                Ok(count) => pipe.lines.feed(&self.buffer[..count], &mut self.lines),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.sinks[stream].push(&self.lines);
        if ended {
            self.close_pipe(number, stream);
        }
    }

    fn close_pipe(&mut self, number: usize, stream: usize) {
        if let Some(mut pipe) = self.ranks[number].pipes[stream].take() {
            self.lines.clear();
            pipe.lines.finish(&mut self.lines);
            self.sinks[stream].push(&self.lines);
        }
    }

    fn pipes_are_closed(&self) -> bool {
        self.ranks.iter().all(|r| r.pipes.iter().all(Option::is_none))
    }
}

fn ranks_text(count: usize) -> String {
    if count == 1 { "rank".into() } else { format!("{count} ranks") }
}
