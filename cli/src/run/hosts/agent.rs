//! `mapwire agent`: the launcher of the ranks of one host, on behalf of a head.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use mapwire_transport::rendezvous::Secret;

use super::super::program::Program;
use super::super::{Job, Place, keeper, launcher, signals};
use super::files::Basket;
use super::frame::{Frames, GREETING, MESSAGE, Message, PROTOCOL, STDERR, Start, frame};
use super::uplink::Uplink;
use crate::config::{Bind, Settings, Transport};
use crate::run::start::explain;
use crate::run::terminal::Stdout;

/// `mapwire agent`.
pub(crate) fn command() -> ExitCode {
    if io::stdin().is_terminal() {
        eprintln!("mapwire: an agent is started by `mapwire run --hosts` and talks to that, not to a terminal");
        return ExitCode::from(2);
    }
    let mut frames = Frames::default();
    let start = match greet().and_then(|()| await_start(&mut frames)) {
        Ok(Some(start)) => start,
        // The head has decided otherwise.
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mapwire: the agent cannot talk to who started it: {error}");
            return ExitCode::FAILURE;
        }
    };
    run(*start, frames)
}

fn greet() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{GREETING}{PROTOCOL} {}", env!("CARGO_PKG_VERSION"))?;
    stdout.write_all(&Message::here().to_frame())?;
    stdout.flush()
}

fn await_start(frames: &mut Frames) -> io::Result<Option<Box<Start>>> {
    loop {
        match frames.read(&mut rustix_stdin())? {
            None => return Ok(None),
            Some((MESSAGE, body)) => match serde_json::from_slice(&body)? {
                Message::Start(start) => return Ok(Some(start)),
                Message::Beat { .. } => {}
                _ => return Ok(None),
            },
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Standard input without a buffer, which would keep what the launcher must read.
fn rustix_stdin() -> impl io::Read {
    struct Stdin;
    impl io::Read for Stdin {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            Ok(rustix::io::read(rustix::stdio::stdin(), bytes)?)
        }
    }
    Stdin
}

fn run(start: Start, frames: Frames) -> ExitCode {
    let written = start.written;
    let basket = (written.trace || written.capture).then(Basket::make);
    let host = start.host.clone();
    let figures = start.figures;
    let refuse = |why: String, code: u8| {
        let why = format!("mapwire: host {host}: {why}\n");
        let said = [frame(STDERR, why.as_bytes()), Message::Over { code }.to_frame()].concat();
        // Who cannot be told has gone.
        let _ = io::stdout().write_all(&said).and_then(|()| io::stdout().flush());
        ExitCode::from(code)
    };
    let basket = match basket.transpose() {
        Ok(basket) => basket,
        Err(error) => {
            return refuse(format!("no folder for what ranks write can be made: {error}"), 1);
        }
    };
    let job = match job(start, basket.as_ref()) {
        Ok(job) => job,
        Err((code, why)) => return refuse(why, code),
    };
    match keeper::start() {
        Ok(keeper::Role::Keeper(code)) => {
            drop(basket);
            ExitCode::from(code)
        }
        Ok(keeper::Role::Launcher(link)) => {
            let code = serve(job, link, (host.clone(), frames, figures), basket.as_ref());
            // The folder is the keeper's to remove.
            std::mem::forget(basket);
            ExitCode::from(code)
        }
        Err(error) => refuse(format!("cannot start the launcher: {}", explain(&error)), 126),
    }
}

fn serve(job: Job, link: keeper::Link, (host, frames, figures): (String, Frames, bool), basket: Option<&Basket>) -> u8 {
    let ranks = job.place.ranks.clone();
    let seen = if figures { ranks.clone() } else { 0..0 };
    let uplink = match Uplink::new(host, frames, seen) {
        Ok(uplink) => uplink,
        Err(error) => {
            eprintln!("cannot start the output: {}", explain(&error));
            return 1;
        }
    };
    let (ended, uplink) = launcher::run_with(job, link, Some(uplink));
    if let Some(uplink) = uplink {
        if let Some(basket) = basket
            && let Err(error) = basket.send(ranks, |frame| uplink.send(&frame))
        {
            eprintln!("what its ranks wrote cannot be read: {error}");
        }
        uplink.finish(ended.code);
    }
    if ended.keeper_is_gone {
        signals::unblock_ending();
    }
    ended.code
}

/// The job as the launcher wants it.
fn job(start: Start, basket: Option<&Basket>) -> Result<Job, (u8, String)> {
    let text = |bytes: Vec<u8>| OsString::from_vec(bytes);
    let mut wdir = PathBuf::from(text(start.folder));
    if !wdir.is_dir() && !start.must_have_folder {
        // As ssh would: a folder that is not on this host is no reason to refuse.
        wdir = std::env::current_dir().unwrap_or_else(|_| "/".into());
    }
    let words: Vec<OsString> = start.program.into_iter().map(text).collect();
    let program = Program::find(&words, Some(&wdir)).map_err(|error| (error.exit_code(), error.to_string()))?;
    let place = Place::of_host(&start.counts, start.number, Secret(start.secret))
        .ok_or((1, "the head's plan of hosts makes no sense".to_owned()))?;
    let variables = start.variables.into_iter().map(|(name, value)| (text(name), text(value)));
    // Names of variables are ours; those that are not would be ignored.
    let mut environment: Vec<(String, String)> = start.environment;
    if let Some(basket) = basket {
        environment.extend(start.written.variables(basket.folder()));
    }
    Ok(Job {
        place,
        program,
        variables: variables.filter(|(name, _)| name != OsStr::new("")).collect(),
        settings: Settings {
            ranks: None,
            transport: Transport::Udp,
            timeout: None,
            stop_grace: Duration::try_from_secs_f64(start.stop_grace_s).unwrap_or(Duration::from_secs(10)),
            bind: if start.bind { Bind::Core } else { Bind::None },
            wdir: None,
            tag: start.tag,
            stdout: if start.terminal { Stdout::Terminal } else { Stdout::Pipe },
            environment,
        },
        seeing: None,
        meeting: None,
    })
}
