//! The ranks of this host: children that are watched and ended, the broker that serves them, and their output.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mapwire_host::log_limit::LogLimit;
use mapwire_transport::board::RankState;
use mapwire_transport::rendezvous::Broker;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitStatus, getpgid, kill_process, kill_process_group};

use super::ending::{self, RankEnd};
use super::group::Group;
use super::hosts::{Message, Uplink};
use super::keeper::Link;
use super::lines::Lines;
use super::names::{Heard, Membership};
use super::oom::OomKills;
use super::signals;
use super::supervisor::{Crew, Ended, FIRST_TOKEN, KILL_GRACE, Phase, Supervisor};
use super::{Job, Layout};
use super::{provider, spawn, start, terminal};
use crate::config::Bind;
use crate::see::Sample;

/// Time for processes that ranks left behind to finish their output, after a clean end.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// The broker, the uplink and the membership, which are served in every turn.
const SERVED: u64 = FIRST_TOKEN;
const PIPES: u64 = FIRST_TOKEN + 1;

struct Pipe {
    fd: OwnedFd,
    lines: Lines,
    watched: bool,
}

impl Pipe {
    fn new(fd: OwnedFd, rank: u32, tag: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd, lines: Lines::new(rank, tag), watched: false })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StopsOf(u32);

impl fmt::Display for StopsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stops of rank {}", self.0)
    }
}

struct Rank {
    pid: Pid,
    /// Standard output and standard error, until their ends.
    pipes: [Option<Pipe>; 2],
    end: Option<RankEnd>,
    stopped_at: Option<Instant>,
}

pub(super) struct Ranks {
    broker: Broker,
    /// Those of this host, in their order.
    ranks: Vec<Rank>,
    /// The number of the first.
    first: u32,
    /// The way to who started this launcher on another host.
    uplink: Option<Uplink>,
    /// The membership of a job whose other ranks other commands start.
    named: Option<Membership>,
    stop_grace: Duration,
    /// Lines of stops, of which a rank can have any number.
    stops: LogLimit<StopsOf>,
    oom_kills: OomKills,
    buffer: Vec<u8>,
    lines: Vec<u8>,
}

/// Runs a job, or the part of it on this host, and gives the uplink back where it could be used. When it returns, no process of the job
/// is left.
pub(super) fn run(mut job: Job, link: Link, uplink: Option<Uplink>) -> (Ended, Option<Uplink>) {
    let keeper = link.keeper;
    let named = match job.meeting.take().map(|meeting| meeting.join(&link)) {
        None => None,
        Some(Ok((membership, place))) => {
            job.layout = place;
            Some(membership)
        }
        Some(Err(code)) => return (Ended::early(code, keeper), None),
    };
    let prepared = Ranks::prepare(&mut job, link, uplink, named);
    let (mut ranks, mut supervisor) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            eprintln!("mapwire: {why}");
            return (Ended::early(1, keeper), None);
        }
    };
    if let Err((code, why)) = start_all(&mut ranks, supervisor.group.as_ref(), &job) {
        supervisor.say(&why);
        ranks.tell_members(&supervisor, code);
        supervisor.kill(&mut ranks, code, Instant::now());
    }
    let ended = supervisor.run(&mut ranks);
    tracing::debug!(stats = ?ranks.broker.stats(), "the job is over");
    (ended, ranks.uplink)
}

/// Starts all ranks. On an error, those started so far run; the exit code and the reason follow.
fn start_all(all: &mut Ranks, group: Option<&Group>, job: &Job) -> Result<(), crate::Failure> {
    let processors = match job.settings.bind {
        Bind::None => Vec::new(),
        Bind::Core => {
            spawn::processors().map_err(|error| (1, format!("--bind core: cannot read the processors: {error}")))?
        }
    };
    let of_provider = provider::variables(&job.settings.environment, |name| {
        std::env::var_os(name).is_some() || job.variables.iter().any(|(given, _)| given == name)
    });
    let mut stdin = (job.layout.ranks.start == 0).then(|| all.stdin_of_rank_0());
    for rank in job.layout.ranks.clone() {
        let mut environment = rank_variables(all, rank, &job.layout);
        for (name, value) in &job.settings.environment {
            environment.push((name.as_str().into(), value.as_str().into()));
        }
        // First, so that -x cannot break what ranks rely on.
        environment.splice(0..0, job.variables.iter().cloned());
        environment.splice(0..0, terminal::variables(job.settings.stdout));
        environment.splice(0..0, of_provider.iter().cloned());
        let local = (rank - job.layout.ranks.start) as usize;
        let processor = (!processors.is_empty()).then(|| processors[local % processors.len()]);
        let stdin = stdin.take().unwrap_or_else(start::nothing);
        let name = job.program.name.to_string_lossy();
        let started = spawn::start(&job.program, &environment, stdin, job.settings.stdout, processor, group)
            .and_then(|s| {
                let out = Pipe::new(s.stdout, rank, job.settings.tag)?;
                let err = Pipe::new(s.stderr, rank, job.settings.tag)?;
                let pipes = [Some(out), Some(err)];
                Ok(Rank { pid: s.pid, pipes, end: None, stopped_at: None })
            })
            .map_err(|error| (126, format!("cannot start rank {rank}, {name}: {}", start::explain(&error))))?;
        let pid = started.pid.as_raw_nonzero().get().unsigned_abs();
        all.broker.set_process(rank, pid);
        all.ranks.push(started);
        // Those that run already need not wait until the last is started.
        all.broker.handle_ready(Instant::now());
    }
    Ok(())
}

/// A rank's variables, beside the launcher's own and the options.
fn rank_variables(all: &Ranks, rank: u32, place: &Layout) -> Vec<(OsString, OsString)> {
    let local = (rank - place.ranks.start).to_string();
    let (rank_text, size) = (rank.to_string(), place.size().to_string());
    let pairs = [
        ("MAPWIRE_JOB", all.broker.address().to_string()),
        ("MAPWIRE_RANK", rank_text.clone()),
        ("MAPWIRE_SIZE", size.clone()),
        ("RANK", rank_text),
        ("WORLD_SIZE", size),
        ("LOCAL_RANK", local),
    ];
    let named = all.named.as_ref();
    pairs
        .into_iter()
        .map(|(k, v)| (k.into(), v.into()))
        .chain(named.into_iter().flat_map(|it| it.variables(rank)))
        .collect()
}

impl Ranks {
    fn prepare(
        job: &mut Job,
        link: Link,
        uplink: Option<Uplink>,
        named: Option<Membership>,
    ) -> Result<(Self, Supervisor), String> {
        start::raise_descriptor_limit(job.layout.ranks.len() as u32);
        let broker = start::broker(job)?;
        let mut supervisor = Supervisor::new(link, uplink.as_ref().map(Uplink::sinks), job.seeing.take())?;
        let error = |errno: Errno| format!("cannot set up the event loop: {}", start::explain(&errno.into()));
        supervisor.listen(&broker, SERVED).map_err(error)?;
        if let Some(membership) = &named {
            supervisor.listen(membership, SERVED).map_err(error)?;
        }
        if let Some(uplink) = &uplink {
            supervisor.listen(uplink.input(), SERVED).map_err(error)?;
            supervisor.speak_for(uplink.host());
        }
        let this = Self {
            broker,
            ranks: Vec::new(),
            first: job.layout.ranks.start,
            uplink,
            named,
            stop_grace: job.settings.stop_grace,
            stops: LogLimit::default(),
            oom_kills: OomKills::now(),
            buffer: vec![0; 64 * 1024],
            lines: Vec::new(),
        };
        Ok((this, supervisor))
    }

    /// Tells the other members of a named job that this one ends it, for the reason that the user was told.
    fn tell_members(&self, supervisor: &Supervisor, code: u8) {
        if let Some(membership) = &self.named {
            membership.abort(code, &supervisor.said());
        }
    }

    fn hear_members(&mut self, supervisor: &mut Supervisor, now: Instant) {
        while let Some(heard) = self.named.as_ref().and_then(Membership::poll_heard) {
            match heard {
                Heard::Notice(text) => supervisor.say(&text),
                Heard::End(text, code) if supervisor.phase == Phase::Running => {
                    supervisor.say(&format!("{text}; ending the ranks here"));
                    supervisor.end(self, code, now);
                }
                Heard::End(..) => {}
            }
        }
    }

    fn stdin_of_rank_0(&mut self) -> Stdio {
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

    fn serve_uplink(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let Some(uplink) = &mut self.uplink else {
            return;
        };
        let killed = 128 + libc::SIGKILL as u8;
        for order in uplink.serve(&mut self.broker, now) {
            match order {
                Some(Message::End { code }) => supervisor.end(self, code, now),
                Some(Message::Kill) => supervisor.kill(self, killed, now),
                Some(Message::Stop) => self.signal_ranks(Signal::STOP),
                Some(Message::Continue) => self.signal_ranks(Signal::CONT),
                Some(_) => {}
                None => {
                    let _ = supervisor.forget(rustix::stdio::stdin());
                    supervisor.kill(self, killed, now);
                }
            }
        }
    }

    fn live(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().filter(|r| r.end.is_none())
    }

    fn numbers(&self, wanted: impl Fn(&Rank) -> bool) -> Vec<String> {
        let all = self.ranks.iter().enumerate();
        all.filter(|(_, r)| wanted(r)).map(|(n, _)| self.number_of(n).to_string()).collect()
    }

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

    fn check_stopped(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let late = |r: &Rank| r.stopped_at.is_some_and(|t| now >= t + self.stop_grace);
        let late = self.numbers(|r| r.end.is_none() && late(r));
        if !late.is_empty() {
            supervisor.say(&format!(
                "rank {} is stopped for more than {} s (--stop-grace), so its peers cannot continue; ending the job",
                late.join(", "),
                self.stop_grace.as_secs_f32()
            ));
            supervisor.end(self, 128 + libc::SIGSTOP as u8, now);
        }
    }

    fn handle_stop(&mut self, supervisor: &Supervisor, number: usize, signal: i32, now: Instant) {
        self.ranks[number].stopped_at.get_or_insert(now);
        let rank = self.number_of(number);
        self.broker.handle_rank_stopped(rank);
        if supervisor.phase == Phase::Running && self.stops.admit(StopsOf(rank), now) {
            let pid = self.ranks[number].pid.as_raw_nonzero();
            supervisor.say(&format!(
                "rank {rank} (process {pid}) was stopped by {}; the job ends in {} s unless it continues: kill -CONT {pid}",
                signals::name(signal),
                self.stop_grace.as_secs_f32()
            ));
        }
    }

    fn handle_end(&mut self, supervisor: &mut Supervisor, number: usize, end: RankEnd, now: Instant) {
        let rank = self.number_of(number);
        let joined = self.broker.has_joined(rank);
        let left = self.broker.board().state(rank) == RankState::Left;
        self.broker.handle_rank_exited(rank, end.is_clean(), now);
        self.ranks[number].end = Some(end);
        self.ranks[number].stopped_at = None;
        mapwire_transport::ofi::remove_leftovers(self.ranks[number].pid.as_raw_nonzero().get() as u32);
        // Its last words come before what is said of it.
        self.read_pipe(supervisor, number, 0, 16);
        self.read_pipe(supervisor, number, 1, 16);
        if end.is_clean() {
            if joined && !left {
                tracing::info!("rank {rank} ended without leaving the job");
            }
            return;
        }
        if supervisor.phase == Phase::Running {
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
            supervisor.say(&format!("rank {rank} (process {pid}) {end}{why}{others}"));
            supervisor.end(self, end.exit_code(), now);
        }
    }

    /// Reads ranks' pipes whose sink has room, and leaves the others to fill.
    fn watch_pipes(&mut self, supervisor: &Supervisor) {
        let room = supervisor.sinks.each_ref().map(|sink| !sink.is_full());
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            for (stream, pipe) in rank.pipes.iter_mut().enumerate() {
                let Some(pipe) = pipe else { continue };
                if pipe.watched == room[stream] {
                    continue;
                }
                let outcome = match room[stream] {
                    true => supervisor.listen(&pipe.fd, PIPES + (number * 2 + stream) as u64),
                    false => supervisor.forget(&pipe.fd),
                };
                if outcome.is_ok() {
                    pipe.watched = room[stream];
                }
            }
        }
    }

    fn read_pipe(&mut self, supervisor: &Supervisor, number: usize, stream: usize, limit: usize) {
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
        supervisor.sinks[stream].push(&self.lines);
        if ended {
            self.close_pipe(supervisor, number, stream);
        }
    }

    fn close_pipe(&mut self, supervisor: &Supervisor, number: usize, stream: usize) {
        if let Some(mut pipe) = self.ranks[number].pipes[stream].take() {
            self.lines.clear();
            pipe.lines.finish(&mut self.lines);
            supervisor.sinks[stream].push(&self.lines);
        }
    }

    fn pipes_are_closed(&self) -> bool {
        self.ranks.iter().all(|r| r.pipes.iter().all(Option::is_none))
    }
}

impl Crew for Ranks {
    const MORE_GRACE: Duration = Duration::ZERO;

    fn advance(&mut self, supervisor: &mut Supervisor, now: Instant) {
        if supervisor.phase == Phase::Running {
            self.check_stopped(supervisor, now);
        }
        while let Some(left_out) = self.stops.poll(now) {
            supervisor.say(&left_out.to_string());
        }
        let is_clean = supervisor.phase == Phase::Running;
        if matches!(supervisor.phase, Phase::Running | Phase::Ending(_) | Phase::Killed(_)) && self.live().count() == 0
        {
            supervisor.phase = Phase::Leftover(if is_clean { now + LEFTOVER_GRACE } else { now });
        }
        match supervisor.phase {
            Phase::Ending(at) if now >= at => {
                let late = self.numbers(|r| r.end.is_none()).join(", ");
                let grace = KILL_GRACE.as_secs();
                supervisor.say(&format!("rank {late} did not end within {grace} s of SIGTERM; killing"));
                self.kill(supervisor, now);
            }
            Phase::Leftover(at) if now >= at || self.pipes_are_closed() => {
                if !ending::end_descendants(supervisor.group.as_ref()) {
                    supervisor.say("a process of the job does not die, even by SIGKILL");
                }
                for (rank, stream) in (0..self.ranks.len()).flat_map(|rank| [(rank, 0), (rank, 1)]) {
                    self.read_pipe(supervisor, rank, stream, usize::MAX);
                    self.close_pipe(supervisor, rank, stream);
                }
                for left_out in std::mem::take(&mut self.stops).finish() {
                    supervisor.say(&left_out.to_string());
                }
                supervisor.phase = Phase::Flushing;
            }
            _ => {}
        }
        self.watch_pipes(supervisor);
    }

    fn next_time(&self, phase: Phase, now: Instant) -> Option<Instant> {
        let of_phase = match phase {
            Phase::Ending(at) | Phase::Leftover(at) => Some(at),
            Phase::Running => self.live().filter_map(|r| r.stopped_at).map(|t| t + self.stop_grace).min(),
            _ => None,
        };
        let uplink = self.uplink.as_ref().map(Uplink::poll_at);
        [of_phase, uplink, self.broker.poll_at(now), self.stops.poll_at()].into_iter().flatten().min()
    }

    fn handle_event(&mut self, supervisor: &mut Supervisor, token: u64, _now: Instant) {
        if token >= PIPES {
            let at = (token - PIPES) as usize;
            self.read_pipe(supervisor, at / 2, at % 2, 16);
        }
    }

    fn serve(&mut self, supervisor: &mut Supervisor, now: Instant) {
        self.broker.handle_ready(now);
        self.serve_uplink(supervisor, now);
        self.hear_members(supervisor, now);
    }

    fn handle_child(&mut self, supervisor: &mut Supervisor, pid: Pid, status: WaitStatus, now: Instant) {
        let Some(number) = self.ranks.iter().position(|r| r.pid == pid) else {
            // An orphan that a rank left.
            return;
        };
        if let Some(end) = RankEnd::of(status) {
            self.handle_end(supervisor, number, end, now);
        } else if let Some(signal) = status.stopping_signal() {
            self.handle_stop(supervisor, number, signal, now);
        } else {
            self.ranks[number].stopped_at = None;
            let rank = self.number_of(number);
            self.broker.handle_rank_continued(rank);
        }
    }

    fn begin_ending(&mut self, supervisor: &mut Supervisor, code: u8) {
        if let Some(uplink) = &self.uplink {
            uplink.tell_end(code);
        }
        self.tell_members(supervisor, code);
        self.signal_ranks(Signal::TERM);
        // A stopped process sees the signal only when it continues.
        self.signal_ranks(Signal::CONT);
    }

    fn kill(&mut self, supervisor: &mut Supervisor, _now: Instant) {
        supervisor.phase = Phase::Killed(None);
        self.signal_ranks(Signal::KILL);
        if let Some(group) = &supervisor.group {
            group.kill();
        }
    }

    /// Ranks are in groups of their own, so that Ctrl-Z does not reach them.
    fn pause(&mut self) {
        self.signal_ranks(Signal::STOP);
        signals::stop_here();
        self.signal_ranks(Signal::CONT);
    }

    fn members(&self) -> String {
        ranks_text(self.live().count())
    }

    fn orphaned(&self) -> Option<&'static str> {
        match (&self.uplink, &self.named) {
            (Some(_), _) => Some("the agent was killed; ending the job"),
            (None, Some(_)) => Some("the command was killed; ending the job"),
            (None, None) => None,
        }
    }

    fn samples(&self) -> Vec<Sample> {
        let ranks = (self.first..).take(self.ranks.len());
        ranks.map(|rank| Sample::of(self.broker.board(), rank)).collect()
    }

    fn close(&mut self, supervisor: &mut Supervisor) {
        if let Some(uplink) = &mut self.uplink {
            uplink.tell_figures(&self.broker);
        }
        // However it came to this, who leaves without a word has ended well.
        if let Some(code) = supervisor.code.filter(|code| *code != 0) {
            self.tell_members(supervisor, code);
        }
        if let Some(membership) = self.named.take() {
            membership.leave();
        }
    }
}

fn ranks_text(count: usize) -> String {
    if count == 1 { "rank".into() } else { format!("{count} ranks") }
}
