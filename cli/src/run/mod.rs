//! `mapwire run`: starts the ranks of a job, is their broker, carries their output, ends them together.
//!
//! Two processes. The *keeper* is the one that the user's shell knows: it forks the *launcher* and
//! from then on only waits. The launcher starts the ranks as its children and does all the work.
//! Whoever of the two is killed, the other still ends every process of the job; ranks are also told
//! to die with the launcher by the kernel (PR_SET_PDEATHSIG), so that even both may be killed.
//!
//! | module | holds |
//! |---|---|
//! | [`program`] | finding the program as `execvp` would, with errors before anything starts |
//! | [`keeper`] | the outer process |
//! | [`supervisor`] | the launcher's event loop: signals, output, how a job ends |
//! | [`ranks`] | what it watches on one host: children, their broker and pipes |
//! | [`spawn`] | starting one rank |
//! | [`ending`] | how ranks end, and ending every descendant |
//! | [`group`] | the job's control group |
//! | [`sweeper`] | the process that ends and removes it when keeper and launcher are both killed |
//! | [`oom`] | whether the kernel killed a rank because memory ran out |
//! | [`lines`], [`sink`] | rank-tagged lines, and writing them without blocking the loop |
//! | [`terminal`] | what a rank writes its output to |
//! | [`signals`] | signals as readable events |
//! | [`gathering`] | the folder of what the ranks write down |
//! | [`trace`], [`capture`] | one trace, one capture of it |
//! | [`seeing`] | what the ranks have counted: for the user at the end, for collectors of metrics |
//! | [`profile`] | which allocations of the shared memory have cost most |
//! | [`hosts`] | jobs over several hosts |
//! | [`names`] | jobs of which other commands start the other ranks |

mod capture;
mod ending;
mod gathering;
mod group;
pub(crate) mod hosts;
mod keeper;
mod lines;
mod names;
mod oom;
mod profile;
pub(crate) mod program;
mod provider;
mod ranks;
mod seeing;
#[allow(unsafe_code)]
pub(crate) mod signals;
mod sink;
#[allow(unsafe_code)]
mod spawn;
pub(crate) mod start;
mod supervisor;
mod sweeper;
pub(crate) mod terminal;
mod trace;

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use mapwire_settings::Transport;
use mapwire_transport::board::MAX_RANKS;
use mapwire_transport::rendezvous::Secret;

use crate::args::RunArgs;
use crate::config::{Layers, Settings};
use crate::{Failure, failing};

/// Which ranks a launcher starts, and where the others are.
pub(crate) struct Layout {
    pub(crate) ranks: Range<u32>,
    hosts: Vec<u32>,
    /// The number of this host and the job's secret, where other hosts have launchers of their own.
    here: Option<(u32, Secret)>,
}

impl Layout {
    fn whole(ranks: u32, transport: Transport) -> Self {
        Self {
            ranks: 0..ranks,
            hosts: match transport {
                Transport::Shm => vec![0; ranks as usize],
                Transport::Udp | Transport::Ofi => (0..ranks).collect(),
            },
            here: None,
        }
    }

    /// Some ranks of a job of `size`, whose broker is one of them.
    fn part(ranks: Range<u32>, size: u32) -> Self {
        Self { ranks, hosts: vec![0; size as usize], here: None }
    }

    /// The ranks of host `number` of those with so many ranks each; `None` if that cannot be.
    pub(crate) fn of_host(counts: &[u32], number: u32, secret: Secret) -> Option<Self> {
        let all = counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        if !(1..=u64::from(MAX_RANKS)).contains(&all) || number as usize >= counts.len() {
            return None;
        }
        let before: u32 = counts[..number as usize].iter().sum();
        let numbered = (0..).zip(counts);
        let hosts = numbered.flat_map(|(host, count)| std::iter::repeat_n(host, *count as usize));
        Some(Self {
            ranks: before..before + counts[number as usize],
            hosts: hosts.collect(),
            here: Some((number, secret)),
        })
    }

    fn size(&self) -> u32 {
        self.hosts.len() as u32
    }
}

pub(crate) struct Job {
    layout: Layout,
    program: program::Program,
    variables: Vec<(OsString, OsString)>,
    settings: Settings,
    seeing: Option<seeing::Wanted>,
    /// How its other ranks are met, where other commands start them.
    meeting: Option<Box<names::Meeting>>,
}

pub(crate) fn command(args: &RunArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let layers = Layers::read(&args.options, file).map_err(failing(2))?;
    let settings = Settings::from_layers(&layers).map_err(failing(2))?;
    let work = work(args, settings)?;
    let gathering = gathering::Gathering::begin(args, &work)?;
    let work = work.writing(gathering.as_ref());
    match keeper::start() {
        Ok(keeper::Role::Keeper(code)) => {
            // Nothing of the job is left, so the ranks' files are what they will be. Ctrl-C ends this process as any other again.
            signals::unblock_all();
            Ok(match gathering.map(gathering::Gathering::finish) {
                Some(false) if code == 0 => ExitCode::FAILURE,
                _ => ExitCode::from(code),
            })
        }
        Ok(keeper::Role::Launcher(link)) => {
            let ended = work.run(link);
            // The keeper merges what ranks wrote, when nothing of the job is left; if it was killed, the launcher does.
            if ended.keeper_is_gone {
                signals::unblock_ending();
                gathering.map(gathering::Gathering::finish);
            }
            Ok(ExitCode::from(ended.code))
        }
        Err(error) => {
            if let Some(gathering) = gathering {
                gathering.discard();
            }
            Err((126, format!("cannot start the launcher: {}", start::explain(&error))))
        }
    }
}

enum Work {
    Here(Job),
    Spread(hosts::Spread),
}

fn work(args: &RunArgs, settings: Settings) -> Result<Work, Failure> {
    let seeing = seeing::Wanted::new(args)?;
    let variables = variables(&args.variables).map_err(|why| (2, why))?;
    let given = match (&args.hosts, &args.hostfile) {
        (Some(text), _) => Some(hosts::of_option(text)),
        (None, Some(path)) => Some(hosts::of_file(path)),
        (None, None) => None,
    };
    if let Some(given) = given {
        let given = given.map_err(failing(2))?;
        let template = hosts::Template::parse(args.launch_agent.as_deref());
        return Ok(Work::Spread(hosts::Spread {
            plan: hosts::Plan::new(&given, settings.ranks).map_err(|why| (2, why))?,
            template: template.map_err(|why| (2, why))?,
            program: args.program.clone(),
            variables,
            settings,
            written: None,
            seeing,
        }));
    }
    let Some(ranks) = settings.ranks else {
        return Err((2, without_ranks(&args.program)));
    };
    let program = program::Program::find(&args.program, settings.wdir.as_deref())
        .map_err(|error| failing(error.exit_code())(error))?;
    let meeting = names::Meeting::of(args, &settings)?;
    let place = match &meeting {
        None => Layout::whole(ranks, settings.transport()),
        Some(meeting) => meeting.place(),
    };
    Ok(Work::Here(Job { layout: place, program, variables, settings, seeing, meeting: meeting.map(Box::new) }))
}

impl Work {
    fn ranks(&self) -> u32 {
        match self {
            Self::Here(job) => job.layout.size(),
            Self::Spread(spread) => spread.plan.size(),
        }
    }

    fn hosts(&self) -> u32 {
        match self {
            Self::Here(_) => 1,
            Self::Spread(spread) => spread.plan.hosts().len() as u32,
        }
    }

    fn writing(mut self, gathering: Option<&gathering::Gathering>) -> Self {
        if let Some(gathering) = gathering {
            let (written, folder) = (gathering.written(), gathering.folder());
            let seeing = match &mut self {
                Self::Here(job) => {
                    job.settings.environment.extend(written.variables(folder));
                    &mut job.seeing
                }
                Self::Spread(spread) => {
                    spread.written = Some((written, folder.into()));
                    &mut spread.seeing
                }
            };
            if let Some(seeing) = seeing {
                seeing.set_profiles(folder);
            }
        }
        self
    }

    fn run(self, link: keeper::Link) -> supervisor::Ended {
        match self {
            Self::Here(job) => ranks::run(job, link, None).0,
            Self::Spread(spread) => hosts::run(spread, link),
        }
    }
}

/// Says how to give the number of ranks; where it stands behind the program, that it is taken for the program's own there.
fn without_ranks(program: &[OsString]) -> String {
    let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
    let given = words
        .windows(2)
        .skip(1)
        .find(|pair| matches!(&*pair[0], "-n" | "-np" | "--np" | "--ranks") && pair[1].parse::<u32>().is_ok());
    match given {
        None => "how many ranks? Give -n N, or set MAPWIRE_RANKS or `ranks` in the configuration file".into(),
        Some(pair) => format!(
            "how many ranks? `{} {}` stands behind the program, so it is an argument of {name}; write mapwire run -n {} -- {name}",
            pair[0],
            pair[1],
            pair[1],
            name = words[0]
        ),
    }
}

/// What `-x` asks for. A variable without a value must be set already: ranks get the whole
/// environment, so there is nothing else to do for it.
fn variables(given: &[OsString]) -> Result<Vec<(OsString, OsString)>, String> {
    let mut variables = Vec::new();
    for text in given {
        let bytes = text.as_bytes();
        let (name, value) = match bytes.iter().position(|b| *b == b'=') {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        let shown = String::from_utf8_lossy(name).into_owned();
        if name.is_empty() {
            return Err(format!("-x {}: the variable's name is missing", text.to_string_lossy()));
        }
        match value {
            Some(value) => {
                variables.push((OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into()));
            }
            None if std::env::var_os(OsStr::from_bytes(name)).is_some() => {}
            None => {
                return Err(format!("-x {shown}: {shown} is not set; give -x {shown}=VALUE"));
            }
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_ranks_behind_the_program_is_told_where_it_belongs() {
        let says = |line: &str| without_ranks(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["./first -n 2", "./first x -np 2", "./first --ranks 2"] {
            assert!(says(line).contains("mapwire run -n 2 -- ./first"), "{line}");
        }
        for line in ["./first", "./first -n", "./first -n many", "-n 2"] {
            assert!(says(line).starts_with("how many ranks? Give -n N"), "{line}");
        }
    }

    #[test]
    fn x_sets_a_variable_or_insists_that_it_is_set() {
        let given = |text: &str| variables(&[text.into()]);
        assert_eq!(given("A=b=c"), Ok(vec![("A".into(), "b=c".into())]));
        assert_eq!(given("A="), Ok(vec![("A".into(), "".into())]));
        assert_eq!(given("PATH"), Ok(vec![]));
        assert!(given("MAPWIRE_NEVER_SET").unwrap_err().contains("-x MAPWIRE_NEVER_SET=VALUE"));
        assert!(given("=x").is_err());
    }
}
