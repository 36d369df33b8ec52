//! The head: what the supervisor watches where a job is over several hosts.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mapwire_transport::board::RankState;
use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};
use rustix::rand::{GetRandomFlags, getrandom};

use super::super::ending::{self, RankEnd};
use super::super::gathering::Written;
use super::super::keeper::Link;
use super::super::seeing::Wanted;
use super::super::signals;
use super::super::sink::Sink;
use super::super::start::raise_descriptor_limit;
use super::super::supervisor::{Crew, Ended, FIRST_TOKEN, Phase, Supervisor};
use super::command::Template;
use super::files::Files;
use super::frame::{BEAT, FILE, MESSAGE, Message, PROTOCOL, SILENCE, Start};
use super::peer::{Heard, Peer};
use super::plan::Plan;
use super::stdin::Tap;
use crate::config::Settings;
use crate::see::Sample;

/// An agent that has not greeted by then does not come: a name is looked up, a connection made, a program started.
const GREETING_TIME: Duration = Duration::from_secs(30);
/// Between the end of an agent's process and that of its output, or the other way round.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Time for agents beyond that which they give their ranks.
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
    /// The files that ranks write, and their folder here.
    pub(crate) written: Option<(Written, PathBuf)>,
    pub(crate) seeing: Option<Wanted>,
}

struct Head {
    spread: Spread,
    peers: Vec<Peer>,
    beat_at: Instant,
    tap: Option<Tap>,
    files: Option<Files>,
    samples: Vec<Sample>,
}

/// Runs the job. When it returns, no process of it is left on this host, and none on others that could still be reached.
pub(crate) fn run(mut spread: Spread, link: Link) -> Ended {
    let keeper = link.keeper;
    raise_descriptor_limit(spread.plan.hosts().len() as u32);
    let mut supervisor = match Supervisor::new(link, None, spread.seeing.take()) {
        Ok(supervisor) => supervisor,
        Err(why) => {
            eprintln!("mapwire: {why}");
            return Ended::early(1, keeper);
        }
    };
    let mut head = Head::new(spread);
    supervisor.phase = Phase::Starting(Instant::now() + GREETING_TIME);
    if let Err((code, why)) = head.start_agents() {
        supervisor.say(&why);
        supervisor.kill(&mut head, code, Instant::now());
    }
    supervisor.run(&mut head)
}

impl Head {
    fn new(spread: Spread) -> Self {
        let hosts = spread.plan.hosts().zip(0..);
        let samples = hosts.flat_map(|((_, ranks), host)| ranks.map(move |rank| Sample::absent(rank, host)));
        Self {
            peers: Vec::new(),
            beat_at: Instant::now() + BEAT,
            tap: None,
            files: (spread.written.clone()).map(|(_, folder)| Files::into_folder(folder)),
            samples: samples.collect(),
            spread,
        }
    }

    fn start_agents(&mut self) -> Result<(), crate::Failure> {
        for host in self.spread.plan.hosts() {
            self.peers.push(Peer::start(host, &self.spread.template)?);
        }
        Ok(())
    }

    fn tell_all(&self, message: &Message, but: Option<usize>) {
        for (number, peer) in self.peers.iter().enumerate() {
            if Some(number) != but && peer.has_greeted && !peer.is_done() {
                peer.connection.tell(message);
            }
        }
    }

    fn handle(&mut self, supervisor: &mut Supervisor, from: usize, heard: Heard, now: Instant) {
        let lost = match heard {
            Heard::Greeting(text) => return self.greet(supervisor, from, &text, now),
            Heard::Frame(MESSAGE, body) => match serde_json::from_slice(&body) {
                Ok(message) => self.handle_message(supervisor, from, message, now),
                Err(error) => Err(format!("its agent sent a malformed message: {error}")),
            },
            Heard::Frame(FILE, body) => self.take_file(from, &body),
            Heard::Frame(kind, _) => Err(format!("its agent sent a frame of the unknown kind {kind}")),
        };
        if let Err(why) = lost {
            self.lose(supervisor, from, &why, now);
        }
    }

    fn greet(&mut self, supervisor: &mut Supervisor, from: usize, text: &str, now: Instant) {
        let (protocol, version) = text.split_once(' ').unwrap_or((text, "unknown"));
        let ours = env!("CARGO_PKG_VERSION");
        if protocol.parse() != Ok(PROTOCOL) || version != ours {
            let shown: String = version.chars().filter(|c| !c.is_control()).take(40).collect();
            let name = &self.peers[from].name;
            let which = if version == ours { " of another build" } else { "" };
            supervisor.say(&format!(
                "host {name} has mapwire {shown}{which}, this is {ours}: install the same version on both"
            ));
            return supervisor.kill(self, 1, now);
        }
        self.peers[from].has_greeted = true;
        self.peers[from].connection.excuse();
        if matches!(supervisor.phase, Phase::Starting(_)) && self.peers.iter().all(|peer| peer.has_greeted) {
            match self.start_ranks(supervisor.is_watched()) {
                Ok(()) => supervisor.phase = Phase::Running,
                Err(error) => {
                    supervisor.say(&format!("cannot start the ranks: {error}"));
                    supervisor.kill(self, 1, now);
                }
            }
        }
    }

    fn start_ranks(&mut self, figures: bool) -> io::Result<()> {
        let spread = &self.spread;
        let mut secret = [0; 32];
        getrandom(&mut secret, GetRandomFlags::empty())?;
        let counts: Vec<u32> = spread.plan.hosts().map(|(_, ranks)| ranks.len() as u32).collect();
        let variables: Vec<_> = own_variables().chain(spread.variables.iter().cloned()).collect();
        let mut settings = spread.settings.clone();
        let is_told = settings.environment.iter().any(|(name, _)| name == ADDRESSES);
        let is_spread = spread.plan.hosts().any(|(name, _)| !spread.template.is_local(name));
        if !is_told && is_spread {
            settings.environment.push((ADDRESSES.into(), "auto".into()));
        }
        let wdir = settings.wdir.take();
        let mut folder = std::env::current_dir()?;
        folder.extend(&wdir);
        for (number, peer) in self.peers.iter().enumerate() {
            let start = Start {
                host: peer.name.clone(),
                number: number as u32,
                counts: counts.clone(),
                secret,
                program: spread.program.clone(),
                folder: folder.clone().into(),
                must_have_folder: wdir.is_some(),
                variables: variables.clone(),
                settings: settings.clone(),
                written: (spread.written.as_ref()).map_or_else(Written::default, |(it, _)| *it),
                figures,
            };
            peer.connection.tell(&Message::Start(Box::new(start)));
        }
        if let Some(first) = self.peers.first() {
            let inlet = first.connection.out.clone();
            let tap = Tap::open(move |frame| inlet.push(&frame))?;
            tap.ask();
            self.tap = Some(tap);
        }
        Ok(())
    }

    /// On an error, the agent is given up.
    fn handle_message(
        &mut self,
        supervisor: &mut Supervisor,
        from: usize,
        message: Message,
        now: Instant,
    ) -> Result<(), String> {
        match message {
            Message::Card { rank, .. } | Message::State { rank, .. } => {
                if !self.peers[from].ranks.contains(&rank) {
                    return Err(format!("its agent spoke for rank {rank}, which is not there"));
                }
                if let Message::State { state, .. } = message {
                    self.samples[rank as usize].state = state;
                }
                self.tell_all(&message, Some(from));
            }
            // It has said why.
            Message::End { code } => supervisor.end(self, code, now),
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
                    supervisor.end(self, code, now);
                }
            }
            Message::Here { boot, clock_ns } => self.peers[from].clock.begin(&boot, clock_ns),
            Message::Beat { clock_ns } => self.peers[from].clock.note(clock_ns),
            Message::Start(_) | Message::Kill | Message::Stop | Message::Continue => {
                return Err("its agent sent a message that only a head sends".into());
            }
        }
        Ok(())
    }

    fn take_file(&mut self, from: usize, body: &[u8]) -> Result<(), String> {
        let taken = match &mut self.files {
            Some(files) => files.take(&self.peers[from].ranks, body),
            None => Err("nobody asked for files".to_owned()),
        };
        taken.map_err(|why| format!("a file of its ranks cannot be kept: {why}"))
    }

    /// Gives up agents that have ended before their ranks, or are silent.
    fn check_agents(&mut self, supervisor: &mut Supervisor, now: Instant) {
        for number in 0..self.peers.len() {
            let peer = &self.peers[number];
            if peer.is_done() {
                continue;
            }
            let is_late = |at: Instant| now >= at + LAST_WORDS;
            let why = match (&peer.stream_end, &peer.process_end) {
                // What the launch agent said comes first: it tells more. A process that it left may hold the pipe open.
                (Some((_, why)), Some((at, end, code))) if peer.have_words_ended() || is_late(*at) => {
                    Some(self.why(peer, why.as_deref(), Some((end, *code))))
                }
                (Some((at, why)), None) if is_late(*at) => Some(self.why(peer, why.as_deref(), None)),
                (None, Some((at, end, code))) if is_late(*at) => Some(self.why(peer, None, Some((end, *code)))),
                (None, None) if peer.has_greeted && peer.connection.is_silent(now) => {
                    Some(format!("nothing was heard of it for {} s", SILENCE.as_secs()))
                }
                _ => None,
            };
            if let Some(why) = why {
                self.lose(supervisor, number, &why, now);
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
    fn lose(&mut self, supervisor: &mut Supervisor, number: usize, why: &str, now: Instant) {
        let peer = &mut self.peers[number];
        if peer.is_lost {
            return;
        }
        peer.is_lost = true;
        let _ = kill_process_group(peer.pid, Signal::KILL);
        let (name, ranks) = (peer.name.clone(), peer.ranks.clone());
        let had_greeted = peer.has_greeted;
        for rank in ranks {
            self.tell_all(&Message::State { rank, state: RankState::Dead }, Some(number));
        }
        if matches!(supervisor.phase, Phase::Starting(_) | Phase::Running) {
            let lost = if had_greeted { " is lost" } else { "" };
            supervisor.say(&format!("host {name}{lost}: {why}; ending the job"));
            supervisor.end(self, 1, now);
        }
    }
}

impl Crew for Head {
    const MORE_GRACE: Duration = AGENT_GRACE;

    fn advance(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let is_live = !matches!(supervisor.phase, Phase::Flushing | Phase::Over);
        if is_live && self.peers.iter().all(Peer::is_done) {
            supervisor.phase = Phase::Flushing;
        }
        match supervisor.phase {
            Phase::Starting(at) if now >= at => {
                let late = self.peers.iter().filter(|peer| !peer.has_greeted);
                let late: Vec<&str> = late.map(|peer| &*peer.name).collect();
                supervisor.say(&format!(
                    "no answer within {} s from host {}; is it up, and does the launch agent (--launch-agent) reach it without questions?",
                    GREETING_TIME.as_secs(),
                    late.join(", ")
                ));
                supervisor.kill(self, 1, now);
            }
            Phase::Ending(at) if now >= at => self.kill(supervisor, now),
            Phase::Killed(Some(at)) if now >= at => {
                for peer in &mut self.peers {
                    let _ = kill_process_group(peer.pid, Signal::KILL);
                    peer.is_lost = true;
                }
            }
            _ => {}
        }
        let has_room = !supervisor.sinks.iter().any(Sink::is_full);
        for (number, peer) in self.peers.iter_mut().enumerate() {
            peer.watch(supervisor, number, has_room);
        }
    }

    fn next_time(&self, phase: Phase, now: Instant) -> Option<Instant> {
        let phase = match phase {
            Phase::Starting(at) | Phase::Ending(at) => Some(at),
            Phase::Killed(given_up) => given_up,
            _ => None,
        };
        let is_between = |peer: &Peer| !peer.is_done() && (peer.stream_end.is_some() || peer.process_end.is_some());
        let words = self.peers.iter().any(is_between).then(|| now + LAST_WORDS / 10);
        [phase, words, Some(self.beat_at)].into_iter().flatten().min()
    }

    fn handle_event(&mut self, supervisor: &mut Supervisor, token: u64, now: Instant) {
        let at = (token - FIRST_TOKEN) as usize;
        let peer = &mut self.peers[at / 2];
        if at % 2 == 1 {
            return peer.read_words(supervisor);
        }
        for heard in peer.read_output(supervisor, now) {
            self.handle(supervisor, at / 2, heard, now);
        }
    }

    fn serve(&mut self, supervisor: &mut Supervisor, now: Instant) {
        self.check_agents(supervisor, now);
        if now >= self.beat_at {
            self.beat_at = now + BEAT;
            self.tell_all(&Message::beat(), None);
        }
    }

    fn handle_child(&mut self, _supervisor: &mut Supervisor, pid: Pid, status: WaitStatus, now: Instant) {
        let peer = self.peers.iter_mut().find(|peer| peer.pid == pid);
        if let (Some(peer), Some(end)) = (peer, RankEnd::of(status)) {
            let code = match end {
                RankEnd::Exited(code) => Some(code),
                RankEnd::Killed(_) => None,
            };
            peer.process_end = Some((now, end.to_string(), code));
        }
    }

    fn begin_ending(&mut self, _supervisor: &mut Supervisor, code: u8) {
        self.tell_all(&Message::End { code }, None);
    }

    /// Has the ranks killed, and what started no rank yet.
    fn kill(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let was_starting = matches!(supervisor.phase, Phase::Starting(_));
        supervisor.phase = Phase::Killed(Some(if was_starting { now } else { now + AGENT_GRACE }));
        self.tell_all(&Message::Kill, None);
    }

    /// The ranks are stopped and continued by their agents.
    fn pause(&mut self) {
        self.tell_all(&Message::Stop, None);
        // The threads that carry it have a moment.
        std::thread::sleep(Duration::from_millis(20));
        signals::stop_here();
        self.peers.iter_mut().for_each(|peer| peer.connection.excuse());
        self.tell_all(&Message::Continue, None);
    }

    fn members(&self) -> String {
        let hosts = self.peers.iter().filter(|peer| !peer.is_done()).count();
        format!("the ranks on {hosts} hosts")
    }

    fn orphaned(&self) -> Option<&'static str> {
        None
    }

    fn samples(&self) -> Vec<Sample> {
        self.samples.clone()
    }

    fn close(&mut self, supervisor: &mut Supervisor) {
        // By how much clocks of hosts differ from this one's, for whoever merges the files of their ranks.
        for (files, peer) in self.files.iter().flat_map(|files| self.peers.iter().map(move |peer| (files, peer))) {
            if let Err(error) = files.note_clock(peer.ranks.clone(), peer.clock.ahead_ns()) {
                supervisor.say(&format!("the clock of host {} cannot be noted: {error}", peer.name));
            }
        }
        self.peers.clear();
        if !ending::end_descendants(supervisor.group.as_ref()) {
            eprintln!("mapwire: a process of the job does not die, even by SIGKILL");
        }
    }
}

/// The variables of mapwire that are set here: a launch agent may not carry them.
fn own_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"MAPWIRE_"))
}
