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
//! | [`launcher`] | the event loop: children, signals, broker, output |
//! | [`spawn`] | starting one rank |
//! | [`ending`] | how ranks end, and ending every descendant |
//! | [`group`] | the job's control group |
//! | [`oom`] | whether the kernel killed a rank because memory ran out |
//! | [`lines`], [`sink`] | rank-tagged lines, and writing them without blocking the loop |
//! | [`terminal`] | what a rank writes its output to |
//! | [`signals`] | signals as readable events |
//! | [`trace`] | one trace of what the ranks wrote down |

mod ending;
mod group;
mod keeper;
mod launcher;
mod lines;
mod oom;
mod program;
#[allow(unsafe_code)]
pub(crate) mod signals;
mod sink;
#[allow(unsafe_code)]
mod spawn;
pub(crate) mod start;
pub(crate) mod terminal;
mod trace;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use crate::args::RunArgs;
use crate::config::{Layers, Settings};
use crate::fail;

/// What the launcher needs to know.
pub(crate) struct Job {
    ranks: u32,
    program: program::Program,
    variables: Vec<(OsString, OsString)>,
    settings: Settings,
}

/// `mapwire run`.
pub(crate) fn command(args: &RunArgs, file: Option<&Path>) -> ExitCode {
    let layers = match Layers::read(&args.options, file) {
        Ok(layers) => layers,
        Err(error) => return fail(&error, 2),
    };
    let settings = match Settings::from_layers(&layers) {
        Ok(settings) => settings,
        Err(error) => return fail(&error, 2),
    };
    let Some(ranks) = settings.ranks else {
        eprintln!(
            "mapwire: how many ranks? Give -n N, or set MAPWIRE_RANKS or `ranks` in the configuration file"
        );
        return ExitCode::from(2);
    };
    let variables = match variables(&args.variables) {
        Ok(variables) => variables,
        Err(why) => {
            eprintln!("mapwire: {why}");
            return ExitCode::from(2);
        }
    };
    let program = match program::Program::find(&args.program, settings.wdir.as_deref()) {
        Ok(program) => program,
        Err(error) => return fail(&error, error.exit_code()),
    };
    let mut job = Job {
        ranks,
        program,
        variables,
        settings,
    };
    let trace = match &args.trace {
        None => None,
        Some(target) => {
            let command = args.program.iter().map(|word| word.to_string_lossy());
            let per_node = args.procs_per_node.unwrap_or(1);
            let command = command.map(Into::into).collect();
            match trace::Trace::begin(target, ranks, per_node, command) {
                Ok(trace) => Some(trace),
                Err(why) => {
                    eprintln!("mapwire: {why}");
                    return ExitCode::from(2);
                }
            }
        }
    };
    job.settings
        .environment
        .extend(trace.iter().map(trace::Trace::variable));
    match keeper::start() {
        Ok(keeper::Role::Keeper(code)) => {
            // Nothing of the job is left, so the ranks' files are what they will be. Ctrl-C ends this process as any other again.
            signals::unblock_all();
            match trace.map(trace::Trace::finish) {
                Some(false) if code == 0 => ExitCode::FAILURE,
                _ => ExitCode::from(code),
            }
        }
        Ok(keeper::Role::Launcher(link)) => {
            let ended = launcher::run(job, link);
            // The keeper makes the trace, when nothing of the job is left; if it was killed, the launcher does.
            if ended.keeper_is_gone {
                signals::unblock_ending();
                trace.map(trace::Trace::finish);
            }
            ExitCode::from(ended.code)
        }
        Err(error) => {
            if let Some(trace) = trace {
                trace.discard();
            }
            eprintln!(
                "mapwire: cannot start the launcher: {}",
                start::explain(&error)
            );
            ExitCode::from(126)
        }
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
            return Err(format!(
                "-x {}: the variable's name is missing",
                text.to_string_lossy()
            ));
        }
        match value {
            Some(value) => {
                variables.push((
                    OsStr::from_bytes(name).into(),
                    OsStr::from_bytes(value).into(),
                ));
            }
            None if std::env::var_os(OsStr::from_bytes(name)).is_some() => {}
            None => {
                return Err(format!(
                    "-x {shown}: {shown} is not set; give -x {shown}=VALUE"
                ));
            }
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_sets_a_variable_or_insists_that_it_is_set() {
        let given = |text: &str| variables(&[text.into()]);
        assert_eq!(given("A=b=c"), Ok(vec![("A".into(), "b=c".into())]));
        assert_eq!(given("A="), Ok(vec![("A".into(), "".into())]));
        assert_eq!(given("PATH"), Ok(vec![]));
        assert!(
            given("MAPWIRE_NEVER_SET")
                .unwrap_err()
                .contains("-x MAPWIRE_NEVER_SET=VALUE")
        );
        assert!(given("=x").is_err());
    }
}
