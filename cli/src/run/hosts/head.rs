//! The head's event loop: agents, signals, and the end of the job.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mapwire_transport::board::RankState;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process_group, wait};
use rustix::rand::{GetRandomFlags, getrandom};

use super::super::ending::{self, RankEnd};
use super::super::gathering::Written;
use super::super::group::Group;
use super::super::keeper::Link;
use super::super::launcher::{Ended, KILL_GRACE, SAME_SIGNAL};
use super::super::seeing::{Wanted, Watch};
use super::super::signals::{self, Signals};
use super::super::sink::{Sink, lost_output};
use super::command::Template;
use super::files::Files;
use super::frame::{BEAT, FILE, MESSAGE, Message, PROTOCOL, SILENCE, Start, State};
use super::peer::{Heard, Inbox, Peer};
use super::plan::Plan;
use super::stdin::Tap;
use crate::config::{Bind, Settings};
use crate::run::start::explain;
use crate::run::terminal::Stdout;
use crate::see::Sample;

/// An agent that has not greeted by then does not come: a name is looked up, a connection made, a program started.
const GREETING_TIME: Duration = Duration::from_secs(30);
/// Between the end of an agent's process and that of its output, or the other way round.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What agents get beyond the time that they give their ranks.
const AGENT_GRACE: Duration = Duration::from_secs(2);

/// Where ranks take datagrams: nothing listens beyond this host unless the job is told to use others.
const ADDRESSES: &str = "MAPWIRE_ADDRESSES";

/// A job over several hosts.
pub(crate) struct Spread {
    pub(crate) plan: Plan,
    pub(crate) template: Template,
    /// The program and its arguments, which each host looks for itself.
    pub(crate) program: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) settings: Settings,
    /// What ranks write, and where their files go.
    pub(crate) written: Option<(Written, PathBuf)>,
    pub(crate) seeing: Option<Wanted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Agents are being started; they must have greeted by then.
    Greeting(Instant),
    Running,
    /// Agents end their ranks; what is left is killed at this time.
    Ending(Instant),
    /// Agents were told to kill; they are killed themselves at this time.
    Killing(Instant),
    /// No agent is left, but output that the user has not read.
    Flushing,
    /// Nothing is left to be done.
    Over,
}

struct Head {
    peers: Vec<Peer>,
    inbox: Arc<Inbox>,
    signals: Signals,
    keeper: OwnedFd,
    keeper_is_gone: bool,
    group: Option<Group>,
    sinks: [Sink; 2],
    phase: Phase,
    code: Option<u8>,
    last_signal: Option<(i32, Instant)>,
    beat_at: Instant,
    tap: Option<Tap>,
    files: Option<Files>,
    watch: Option<Watch>,
    /// The ranks as their agents tell of them.
    samples: Vec<Sample>,
}

/// Runs the job. When it returns, no process of it is left on this host, and none on others that could still be reached.
pub(crate) fn run(mut spread: Spread, link: Link) -> Ended {
    let keeper = link.keeper;
    let seeing = spread.seeing.take();
    let spread = &spread;
    let mut head = match Head::prepare(spread, link, seeing) {
        Ok(head) => head,
        Err(why) => {
            eprintln!("mapwire: cannot set up the event loop: {}", explain(&why));
            return Ended { code: 1, keeper_is_gone: getppid() != Some(keeper) };
        }
    };
    head.start_agents(spread);
    head.work(spread);
    head.note_clocks();
    head.inbox.close();
    head.peers.clear();
    if !ending::end_descendants(head.group.as_ref()) {
        eprintln!("mapwire: a process of the job does not die, even by SIGKILL");
    }
    let lost = head.sinks.iter().find_map(Sink::lost);
    if let Some(errno) = lost.filter(|errno| *errno != rustix::io::Errno::PIPE && head.code.is_none()) {
        let (why, code) = lost_output(errno);
        eprintln!("mapwire: {why}");
        head.code = Some(code);
    }
    if let Some(watch) = head.watch.take() {
        let code = head.code.unwrap_or(0);
        if !watch.finish(&head.samples, code) && code == 0 {
            head.code = Some(1);
        }
    }
    let keeper_is_gone = head.keeper_is_gone || getppid() != Some(keeper);
    if keeper_is_gone && let Some(group) = &head.group {
        group.remove();
    }
    Ended { code: head.code.unwrap_or(0), keeper_is_gone }
}

impl Head {
    fn prepare(spread: &Spread, link: Link, seeing: Option<Wanted>) -> io::Result<Self> {
        super::super::start::raise_descriptor_limit(spread.plan.hosts().len() as u32);
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Ok(Self {
            peers: Vec::new(),
            inbox: Inbox::new()?,
            signals: link.signals,
            keeper: link.pipe,
            keeper_is_gone: false,
            group: link.group,
            sinks: [Sink::start(rustix::stdio::stdout())?, Sink::start(rustix::stdio::stderr())?],
            phase: Phase::Greeting(Instant::now() + GREETING_TIME),
            code: None,
            last_signal: None,
            beat_at: Instant::now() + BEAT,
            tap: None,
            files: (spread.written.clone()).map(|(_, folder)| Files::into_folder(folder)),
            watch: seeing.map(Watch::begin).transpose()?,
            samples: spread
                .plan
                .hosts()
                .zip(0..)
                .flat_map(|((_, ranks), host)| ranks.map(move |rank| Sample::absent(rank, host)))
                .collect(),
        })
    }

    fn say(&self, text: &str) {
        self.sinks[1].push(format!("mapwire: {text}\n").as_bytes());
    }

    fn start_agents(&mut self, spread: &Spread) {
        for (number, host) in spread.plan.hosts().enumerate() {
            match Peer::start(number, host, &spread.template, &self.sinks, &self.inbox) {
                Ok(peer) => self.peers.push(peer),
                Err((code, why)) => {
                    self.say(&why);
                    self.code = Some(code);
                    self.kill(Instant::now());
                    return;
                }
            }
        }
    }

    fn work(&mut self, spread: &Spread) {
        loop {
            let now = Instant::now();
            if self.advance(now) {
                return;
            }
            let wait = self.next_time(now).saturating_duration_since(now);
            self.wait(wait);
            let now = Instant::now();
            self.handle_signals(now);
            self.handle_keeper(now);
            self.sinks.iter().for_each(Sink::clear_event);
            for (from, heard) in self.inbox.take() {
                self.handle(from, heard, spread, now);
            }
            self.check_agents(now);
            if now >= self.beat_at {
                self.beat_at = now + BEAT;
                self.tell_all(&Message::beat(), None);
            }
            if let Some(watch) = &mut self.watch {
                watch.renew(now, || self.samples.clone());
            }
        }
    }

    fn wait(&self, time: Duration) {
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&*self.inbox, PollFlags::IN),
            PollFd::new(&self.sinks[0], PollFlags::IN),
            PollFd::new(&self.sinks[1], PollFlags::IN),
        ];
        if !self.keeper_is_gone {
            fds.push(PollFd::from_borrowed_fd(self.keeper.as_fd(), PollFlags::IN));
        }
        let time = Timespec::try_from(time).ok();
        let _ = poll(&mut fds, time.as_ref());
    }

    fn next_time(&self, now: Instant) -> Instant {
        let phase = match self.phase {
            Phase::Greeting(at) | Phase::Ending(at) | Phase::Killing(at) => Some(at),
            _ => None,
        };
        let is_between = |peer: &Peer| !peer.is_done() && (peer.stream_end.is_some() || peer.process_end.is_some());
        let words = self.peers.iter().any(is_between).then(|| now + LAST_WORDS / 10);
        let watch = self.watch.as_ref().and_then(Watch::poll_at);
        let times = [phase, words, watch].into_iter().flatten();
        times.fold(self.beat_at, Instant::min)
    }

    /// Moves to the next phase if its time has come; `true` at the end of the job.
    fn advance(&mut self, now: Instant) -> bool {
        if matches!(self.phase, Phase::Running)
            && let Some(errno) = self.sinks[0].lost()
        {
            let (why, code) = lost_output(errno);
            self.say(&format!("{why}; ending the job"));
            self.end(code, None, now);
        }
        let is_live = !matches!(self.phase, Phase::Flushing | Phase::Over);
        if is_live && self.peers.iter().all(Peer::is_done) {
            self.phase = Phase::Flushing;
        }
        match self.phase {
            Phase::Greeting(at) if now >= at => {
                let late = self.peers.iter().filter(|peer| !peer.has_greeted);
                let late: Vec<&str> = late.map(|peer| &*peer.name).collect();
                self.say(&format!(
                    "no answer within {} s from host {}; is it up, and does the launch agent (--launch-agent) reach it without questions?",
                    GREETING_TIME.as_secs(),
                    late.join(", ")
                ));
                self.code.get_or_insert(1);
                self.kill(now);
                false
            }
            Phase::Ending(at) if now >= at => {
                self.kill(now);
                false
            }
            Phase::Killing(at) if now >= at => {
                for peer in &mut self.peers {
                    let _ = kill_process_group(peer.pid, Signal::KILL);
                    peer.is_lost = true;
                }
                false
            }
            Phase::Flushing => self.sinks.iter().all(Sink::is_empty),
            Phase::Over => true,
            _ => false,
        }
    }

    fn tell_all(&self, message: &Message, but: Option<usize>) {
        for (number, peer) in self.peers.iter().enumerate() {
            if Some(number) != but && peer.has_greeted && !peer.is_done() {
                peer.tell(message);
            }
        }
    }

    /// Asks all agents to end their ranks, but one that does so already. The first cause decides the exit code.
    fn end(&mut self, code: u8, but: Option<usize>, now: Instant) {
        self.code.get_or_insert(code);
        match self.phase {
            Phase::Greeting(_) => self.kill(now),
            Phase::Running => {
                self.phase = Phase::Ending(now + KILL_GRACE + AGENT_GRACE);
                self.tell_all(&Message::End { code }, but);
            }
            _ => {}
        }
    }

    /// Has the ranks killed, and what started no rank yet.
    fn kill(&mut self, now: Instant) {
        let was_greeting = matches!(self.phase, Phase::Greeting(_));
        self.phase = Phase::Killing(if was_greeting { now } else { now + AGENT_GRACE });
        self.tell_all(&Message::Kill, None);
    }

    fn handle(&mut self, from: usize, heard: Heard, spread: &Spread, now: Instant) {
        match heard {
            Heard::Greeting(text) => self.greet(from, &text, spread, now),
            Heard::Frame(MESSAGE, body) => match serde_json::from_slice(&body) {
                Ok(message) => self.handle_message(from, message, now),
                Err(error) => self.lose(from, &format!("its agent said what makes no sense: {error}"), now),
            },
            Heard::Frame(FILE, body) => self.take_file(from, &body, now),
            Heard::Frame(kind, _) => {
                self.lose(from, &format!("its agent sent a frame of the unknown kind {kind}"), now);
            }
            Heard::End(why) => self.peers[from].stream_end = Some((now, why)),
            Heard::WordsEnd => self.peers[from].have_words_ended = true,
        }
    }

    fn greet(&mut self, from: usize, text: &str, spread: &Spread, now: Instant) {
        let (protocol, version) = text.split_once(' ').unwrap_or((text, "unknown"));
        let ours = env!("CARGO_PKG_VERSION");
        if protocol.parse() != Ok(PROTOCOL) || version != ours {
            let shown: String = version.chars().filter(|c| !c.is_control()).take(40).collect();
            let name = &self.peers[from].name;
            let which = match version == ours {
                true => " of another build",
                false => "",
            };
            self.say(&format!(
                "host {name} has mapwire {shown}{which}, this is {ours}: install the same version on both"
            ));
            self.code.get_or_insert(1);
            return self.kill(now);
        }
        self.peers[from].has_greeted = true;
        self.peers[from].excuse();
        let is_greeting = matches!(self.phase, Phase::Greeting(_));
        if is_greeting && self.peers.iter().all(|peer| peer.has_greeted) {
            match self.start_ranks(spread) {
                Ok(()) => self.phase = Phase::Running,
                Err(error) => {
                    self.say(&format!("cannot start the ranks: {error}"));
                    self.code.get_or_insert(1);
                    self.kill(now);
                }
            }
        }
    }

    fn start_ranks(&mut self, spread: &Spread) -> io::Result<()> {
        let mut secret = [0; 32];
        getrandom(&mut secret, GetRandomFlags::empty())?;
        let counts: Vec<u32> = spread.plan.hosts().map(|(_, ranks)| ranks.len() as u32).collect();
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        let settings = &spread.settings;
        let variables = own_variables().chain(spread.variables.iter().cloned());
        let variables: Vec<_> = variables.map(|(k, v)| (k.into_vec(), v.into_vec())).collect();
        let mut environment = settings.environment.clone();
        let is_told = environment.iter().any(|(name, _)| name == ADDRESSES);
        let is_spread = spread.plan.hosts().any(|(name, _)| !spread.template.is_local(name));
        if !is_told && is_spread {
            environment.push((ADDRESSES.into(), "auto".into()));
        }
        let folder = match &settings.wdir {
            Some(folder) => std::env::current_dir()?.join(folder),
            None => std::env::current_dir()?,
        };
        for (number, peer) in self.peers.iter().enumerate() {
            let start = Start {
                host: peer.name.clone(),
                number: number as u32,
                counts: counts.clone(),
                secret,
                program: spread.program.iter().map(bytes).collect(),
                folder: folder.as_os_str().as_bytes().to_vec(),
                must_have_folder: settings.wdir.is_some(),
                variables: variables.clone(),
                environment: environment.clone(),
                tag: settings.tag,
                terminal: settings.stdout == Stdout::Terminal,
                bind: settings.bind == Bind::Core,
                stop_grace_s: settings.stop_grace.as_secs_f64(),
                written: (spread.written.as_ref()).map_or_else(Written::default, |(it, _)| *it),
                figures: self.watch.is_some(),
            };
            peer.tell(&Message::Start(Box::new(start)));
        }
        if let Some(first) = self.peers.first() {
            let inlet = first.inlet();
            let tap = Tap::open(move |frame| drop(inlet.send(frame)))?;
            tap.ask();
            self.tap = Some(tap);
        }
        Ok(())
    }

    fn handle_message(&mut self, from: usize, message: Message, now: Instant) {
        match message {
            Message::Card { rank, .. } | Message::State { rank, .. } => {
                if self.peers[from].ranks.contains(&rank) {
                    if let Message::State { state, .. } = message {
                        self.samples[rank as usize].state = state.rank_state();
                    }
                    self.tell_all(&message, Some(from));
                } else {
                    let why = format!("its agent spoke for rank {rank}, which is not there");
                    self.lose(from, &why, now);
                }
            }
            // It has said why.
            Message::End { code } => self.end(code, Some(from), now),
            Message::Taken => {
                if let Some(tap) = self.tap.as_ref().filter(|_| from == 0) {
                    tap.ask();
                }
            }
            Message::Figures { rank, pid, at_ns, words } => {
                if self.peers[from].ranks.contains(&rank) {
                    let sample = &mut self.samples[rank as usize];
                    sample.pid = pid;
                    sample.publish(at_ns, &words);
                }
            }
            Message::Over { code } => {
                self.peers[from].over = Some(code);
                if code != 0 {
                    self.end(code, Some(from), now);
                }
            }
            Message::Here { boot, clock_ns } => self.peers[from].clock.begin(&boot, clock_ns),
            Message::Beat { clock_ns } => self.peers[from].clock.note(clock_ns),
            Message::Start(_) | Message::Kill | Message::Stop | Message::Continue => {
                self.lose(from, "its agent said what only a head says", now);
            }
        }
    }

    /// Says by how much clocks of hosts differ from this one's, for whoever merges the files of their ranks.
    fn note_clocks(&self) {
        let Some(files) = &self.files else { return };
        for peer in &self.peers {
            if let Err(error) = files.note_clock(peer.ranks.clone(), peer.clock.ahead_ns()) {
                self.say(&format!("the clock of host {} cannot be noted: {error}", peer.name));
            }
        }
    }

    fn take_file(&mut self, from: usize, body: &[u8], now: Instant) {
        let ranks = self.peers[from].ranks.clone();
        let outcome = match &mut self.files {
            Some(files) => files.take(&ranks, body),
            None => Err("nobody asked for files".to_owned()),
        };
        if let Err(why) = outcome {
            self.lose(from, &format!("a file of its ranks cannot be kept: {why}"), now);
        }
    }

    /// Gives up agents that have ended before their ranks, or are silent.
    fn check_agents(&mut self, now: Instant) {
        for number in 0..self.peers.len() {
            let peer = &self.peers[number];
            if peer.is_done() {
                continue;
            }
            let is_late = |at: Instant| now >= at + LAST_WORDS;
            let why = match (&peer.stream_end, &peer.process_end) {
                // What the launch agent said comes first: it tells more. A process that it left may hold the pipe open.
                (Some((_, why)), Some((at, end, code))) if peer.have_words_ended || is_late(*at) => {
                    Some(self.why(peer, why.as_deref(), Some((end, *code))))
                }
                (Some((at, why)), None) if is_late(*at) => Some(self.why(peer, why.as_deref(), None)),
                (None, Some((at, end, code))) if is_late(*at) => Some(self.why(peer, None, Some((end, *code)))),
                (None, None) if peer.has_greeted && now >= peer.heard_at() + SILENCE => {
                    Some(format!("nothing was heard of it for {} s", SILENCE.as_secs()))
                }
                _ => None,
            };
            if let Some(why) = why {
                self.lose(number, &why, now);
            }
        }
    }

    fn why(&self, peer: &Peer, stream: Option<&str>, process: Option<(&String, Option<i32>)>) -> String {
        let stream = stream.map_or_else(String::new, |why| format!(" ({why})"));
        match process {
            _ if peer.over.is_some() => format!("its agent ended before its output did{stream}"),
            Some((_, Some(127))) if !peer.has_greeted => "mapwire is not there; install it, or say where it is: --launch-agent 'ssh {host} /path/to/mapwire agent'".to_owned(),
            Some((end, _)) if !peer.has_greeted => format!("no agent of mapwire came; the command that starts it {end}{stream}"),
            Some((end, _)) => format!("its agent {end}{stream}"),
            None => format!("its agent closed its output{stream}"),
        }
    }

    /// Gives a host up, and tells the others that its ranks are dead.
    fn lose(&mut self, number: usize, why: &str, now: Instant) {
        let peer = &mut self.peers[number];
        if peer.is_lost {
            return;
        }
        peer.is_lost = true;
        let _ = kill_process_group(peer.pid, Signal::KILL);
        let (name, ranks) = (peer.name.clone(), peer.ranks.clone());
        let had_greeted = peer.has_greeted;
        for rank in ranks {
            let state = State::of(RankState::Dead);
            self.tell_all(&Message::State { rank, state }, Some(number));
        }
        if matches!(self.phase, Phase::Greeting(_) | Phase::Running) {
            let lost = if had_greeted { " is lost" } else { "" };
            self.say(&format!("host {name}{lost}: {why}; ending the job"));
            self.end(1, Some(number), now);
        }
    }

    fn handle_keeper(&mut self, now: Instant) {
        if self.keeper_is_gone {
            return;
        }
        let mut bytes = [0; 16];
        let time = Timespec::default();
        let mut fds = [PollFd::from_borrowed_fd(self.keeper.as_fd(), PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&time)), Ok(1..)) {
            return;
        }
        match rustix::io::read(&self.keeper, &mut bytes) {
            Ok(0) => {
                self.keeper_is_gone = true;
                self.code.get_or_insert(128 + libc::SIGKILL as u8);
                self.kill(now);
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
                libc::SIGTTIN | libc::SIGTTOU => {}
                signal => self.handle_ending_signal(signal, now),
            }
        }
    }

    fn reap(&mut self, now: Instant) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            self.note_end(pid, RankEnd::of(status), now);
        }
    }

    fn note_end(&mut self, pid: Pid, end: Option<RankEnd>, now: Instant) {
        let peer = self.peers.iter_mut().find(|peer| peer.pid == pid);
        if let (Some(peer), Some(end)) = (peer, end) {
            let code = match end {
                RankEnd::Exited(code) => Some(code),
                RankEnd::Killed(_) => None,
            };
            peer.process_end = Some((now, end.to_string(), code));
        }
    }

    /// Ctrl-Z: the ranks are stopped and continued by their agents.
    fn pause(&mut self) {
        self.tell_all(&Message::Stop, None);
        // The threads that carry it have a moment.
        std::thread::sleep(Duration::from_millis(20));
        signals::stop_here();
        self.peers.iter().for_each(Peer::excuse);
        self.tell_all(&Message::Continue, None);
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
                let hosts = self.peers.iter().filter(|peer| !peer.is_done()).count();
                self.say(&format!(
                    "{}: ending the ranks on {hosts} hosts (once more kills at once)",
                    signals::name(signal)
                ));
                self.end(code, None, now);
            }
            Phase::Greeting(_) | Phase::Running | Phase::Ending(_) => {
                self.code.get_or_insert(code);
                self.kill(now);
            }
            Phase::Killing(_) => self.phase = Phase::Killing(now),
            Phase::Flushing => {
                self.code.get_or_insert(code);
                self.phase = Phase::Over;
            }
            Phase::Over => {}
        }
    }
}

/// The variables of mapwire that are set here: a launch agent may not carry them.
fn own_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"MAPWIRE_"))
}
