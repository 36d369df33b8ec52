//! `mapwire agent`: the launcher of the ranks of one host, on behalf of a head.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use mapwire_transport::rendezvous::Secret;

use super::super::program::Program;
use super::super::{Job, Layout, keeper, ranks, signals};
use super::files::Basket;
use super::frame::{Frames, GREETING, MESSAGE, Message, PROTOCOL, STDERR, Start, frame};
use super::uplink::Uplink;
use crate::run::start::explain;

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
    let basket = written.is_any().then(Basket::make);
    let host = start.host.clone();
    let figures = start.figures;
    let refuse = |why: String, code: u8| {
        let why = format!("mapwire: host {host}: {why}\n");
        let said = [frame(STDERR, why.as_bytes()), Message::Over { code }.to_frame()].concat();
        // A head that has gone is not told.
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
    let here = job.layout.ranks.clone();
    let seen = if figures { here.clone() } else { 0..0 };
    let uplink = match Uplink::new(host, frames, seen) {
        Ok(uplink) => uplink,
        Err(error) => {
            eprintln!("cannot start the output: {}", explain(&error));
            return 1;
        }
    };
    let (ended, uplink) = ranks::run(job, link, Some(uplink));
    if let Some(uplink) = uplink {
        if let Some(basket) = basket
            && let Err(error) = basket.send(here, |frame| uplink.send(&frame))
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

fn job(mut start: Start, basket: Option<&Basket>) -> Result<Job, crate::Failure> {
    let mut wdir = PathBuf::from(start.folder);
    if !wdir.is_dir() && !start.must_have_folder {
        // As ssh would: a folder that is not on this host is no reason to refuse.
        wdir = std::env::current_dir().unwrap_or_else(|_| "/".into());
    }
    let program = Program::find(&start.program, Some(&wdir)).map_err(|error| (error.exit_code(), error.to_string()))?;
    let place = Layout::of_host(&start.counts, start.number, Secret(start.secret))
        .ok_or((1, "the head's plan of hosts is invalid".to_owned()))?;
    // A variable without a name would be refused by the system.
    start.variables.retain(|(name, _)| !name.is_empty());
    if let Some(basket) = basket {
        start.settings.environment.extend(start.written.variables(basket.folder()));
    }
    Ok(Job {
        layout: place,
        program,
        variables: start.variables,
        settings: start.settings,
        seeing: None,
        meeting: None,
    })
}
