//! The `MAPWIRE_*` variables as a whole: their names, slips in them, and the marks that other launchers leave.
//!
//! Warnings go to standard error, since programs rarely install a log before they join, and name what to change.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Once;

use crate::NodeConfig;

/// The variables that no [node](NodeConfig::from_env) reads: of launchers, names of jobs, far memory and remote calls, of benches and of
/// mapwire's own tests.
const OTHERS: [&str; 23] = [
    "MAPWIRE_BIND",
    "MAPWIRE_CONFIG",
    "MAPWIRE_FAR_DISK",
    "MAPWIRE_FAR_FILES",
    "MAPWIRE_FAR_LOCAL_PAGES",
    "MAPWIRE_FAR_STATS",
    "MAPWIRE_INCARNATION",
    "MAPWIRE_JOB_NAME",
    "MAPWIRE_LOG",
    "MAPWIRE_NAMES",
    "MAPWIRE_RANKS",
    "MAPWIRE_RPC",
    "MAPWIRE_RPC_RECORD",
    "MAPWIRE_SECRET_FILE",
    "MAPWIRE_SIZE",
    "MAPWIRE_STDOUT",
    "MAPWIRE_STOP_GRACE",
    "MAPWIRE_TAG",
    "MAPWIRE_WDIR",
    "MAPWIRE_BENCH_RANK",
    "MAPWIRE_PING_RANK",
    "MAPWIRE_DOCTOR_RANK",
    "MAPWIRE_LAUNCHER",
];

/// Every variable that mapwire reads or sets.
fn known() -> Vec<String> {
    let known = RefCell::new(Vec::from(OTHERS.map(str::to_owned)));
    let note = |name: &str| {
        known.borrow_mut().push(name.to_owned());
        None
    };
    // What a node asks for is what it reads.
    let _ = NodeConfig::from_variables(note);
    known.into_inner()
}

/// Variables that begin so belong to mapwire's own tests.
const OF_TESTS: &str = "MAPWIRE_TEST_";

/// The levels of `MAPWIRE_LOG`.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A launcher that does not say how its processes learn of each other, and the variables by which it tells the number of processes and the process's own.
struct Foreign {
    launcher: &'static str,
    size: &'static str,
    rank: &'static str,
}

/// `srun` and `mpirun` may set the variables of PMI besides their own.
const FOREIGN: [Foreign; 4] = [
    Foreign { launcher: "mpirun of Open MPI", size: "OMPI_COMM_WORLD_SIZE", rank: "OMPI_COMM_WORLD_RANK" },
    Foreign { launcher: "srun", size: "SLURM_NTASKS", rank: "SLURM_PROCID" },
    Foreign { launcher: "an MPI launcher", size: "PMI_SIZE", rank: "PMI_RANK" },
    Foreign { launcher: "torchrun", size: "WORLD_SIZE", rank: "RANK" },
];

/// What is wrong with each of `names` that begins like a variable of mapwire and is none.
pub fn unknown_variables(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let names = names.into_iter().map(|name| name.to_string_lossy().into_owned());
    let ours = names.filter(|name| name.starts_with("MAPWIRE_") && !name.starts_with(OF_TESTS));
    let known = known();
    let unknown = ours.filter(|name| !known.contains(name));
    let text = |name: String| match nearest(&name, &known) {
        Some(known) => {
            format!("mapwire has no variable {name}, so it has no effect; did you mean {known}?")
        }
        None => format!("mapwire has no variable {name}, so it has no effect"),
    };
    unknown.map(text).collect()
}

/// The variable that at most three changed letters make of `name`.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    let distances = known.iter().map(|known| (strsim::levenshtein(name, known), known));
    let (least, known) = distances.min()?;
    (least <= 3).then_some(known)
}

/// What is wrong with a value of `MAPWIRE_LOG`, if anything is: a list of levels and of `part=level`, such as
/// `warn,mapwire_transport=debug`.
#[must_use]
pub fn log_mistake(value: &str) -> Option<String> {
    let level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let wrong = |part: &&str| match part.split_once('=') {
        Some((of, word)) => of.trim().is_empty() || !level(word.trim()),
        None => !level(part) && !part.starts_with("mapwire"),
    };
    let mut parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
    let part = parts.find(wrong)?;
    Some(format!(
        "MAPWIRE_LOG={value}: `{part}` is not understood; write one of {}, or for a part of mapwire mapwire_transport=debug",
        LEVELS.join(", ")
    ))
}

/// Why this process is alone although another launcher started it with others. Only the first of them says so.
fn foreign_launcher(variable: impl Fn(&str) -> Option<String>, program: &str) -> Option<String> {
    let number = |name: &str| variable(name)?.trim().parse::<u64>().ok();
    let Foreign { launcher, size, rank } = FOREIGN.iter().find(|f| number(f.rank).is_some())?;
    let (marks, ranks) = match number(size) {
        Some(0 | 1) => return None,
        Some(count) => (format!("{size}={count}"), count.to_string()),
        None => return None,
    };
    (number(rank) == Some(0)).then(|| {
        format!(
            "{launcher} started this process ({marks}) without PMIx or PMI, so each is a job of its own; \
             start them by `mapwire run -n {ranks} -- {program}`"
        )
    })
}

/// What is wrong with a number of ranks or a rank given to a process without a job, where they have no effect.
fn size_without_job(variable: impl Fn(&str) -> Option<String>, program: &str) -> Option<String> {
    let name = ["MAPWIRE_SIZE", "MAPWIRE_RANK"].into_iter();
    let (name, value) = name.filter_map(|it| Some((it, variable(it)?))).next()?;
    let ranks = variable("MAPWIRE_SIZE").unwrap_or_else(|| "N".to_owned());
    (name != "MAPWIRE_SIZE" || value.trim() != "1").then(|| {
        format!(
            "{name}={value} has no effect without a job, so this process is alone; start all ranks by `mapwire run -n {ranks} -- {program}`, \
             or have them meet by a name: MAPWIRE_JOB_NAME=NAME besides, and `mapwire serve` on this host"
        )
    })
}

/// Prints a warning; where that cannot be done there is nobody to tell.
pub fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "mapwire: warning: {text}");
}

/// Warns, once, of variables that have no effect. In a job of `mapwire run` that has warned.
pub(crate) fn warn_of_variables() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let names = std::env::vars_os().map(|(name, _)| name);
        unknown_variables(names).iter().for_each(|text| warn(text));
    });
}

/// Warns, once, where the environment says that this process is one of several, so that its user does not expect it to be alone.
pub(crate) fn warn_alone() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let program = std::env::args_os().next().unwrap_or_else(|| "./program".into());
        let variable = |name: &str| std::env::var(name).ok();
        let program = program.to_string_lossy();
        let text = foreign_launcher(variable, &program);
        if let Some(text) = text.or_else(|| size_without_job(variable, &program)) {
            warn(&text);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_none_is_named_with_the_nearest_that_is_one() {
        let says = |name: &str| unknown_variables([name.into()]).pop();
        assert!(says("MAPWIRE_WIAT").unwrap().contains("did you mean MAPWIRE_WAIT?"));
        assert!(says("MAPWIRE_PINLIMIT").unwrap().contains("did you mean MAPWIRE_PIN_LIMIT?"));
        let far = says("MAPWIRE_COLOUR_OF_LINES").unwrap();
        assert!(far.contains("MAPWIRE_COLOUR_OF_LINES") && !far.contains("did you mean"), "{far}");
        for name in ["MAPWIRE_WAIT", "MAPWIRE_BIND", "MAPWIRE_TEST_LABEL", "PATH", "MAPWIRE"] {
            assert_eq!(says(name), None);
        }
    }

    #[test]
    fn a_log_filter_that_is_none_is_named() {
        for good in ["", "debug", "WARN", "warn,mapwire_transport=trace", "mapwire_driver", "off"] {
            assert_eq!(log_mistake(good), None, "{good}");
        }
        for (bad, part) in [("verbose", "`verbose`"), ("warn,x=loud", "`x=loud`"), ("=debug", "`=debug`")] {
            let text = log_mistake(bad).unwrap();
            assert!(text.contains(part) && text.contains("off, error"), "{text}");
        }
    }

    #[test]
    fn a_size_without_a_job_is_told_to_have_no_effect() {
        let says = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
            size_without_job(|name| find(name).map(|it| it.1.to_owned()), "./first")
        };
        let text = says(&[("MAPWIRE_RANK", "0"), ("MAPWIRE_SIZE", "2")]).unwrap();
        assert!(text.contains("MAPWIRE_SIZE=2") && text.contains("mapwire run -n 2 -- ./first"), "{text}");
        assert!(text.contains("MAPWIRE_JOB_NAME"), "{text}");
        assert!(says(&[("MAPWIRE_RANK", "1")]).unwrap().contains("MAPWIRE_RANK=1"));
        assert_eq!(says(&[("MAPWIRE_SIZE", "1")]), None);
        assert_eq!(says(&[]), None);
    }

    #[test]
    fn the_first_process_of_another_launcher_is_told_how_to_start_ranks() {
        let under = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
            foreign_launcher(|name| find(name).map(|(_, value)| (*value).to_owned()), "./prog")
        };
        for (variables, mark) in [
            (&[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "0")][..], "OMPI_COMM_WORLD_SIZE=4"),
            (&[("PMI_SIZE", "4"), ("PMI_RANK", "0")], "PMI_SIZE=4"),
            (&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0"), ("PMI_RANK", "0")], "SLURM_NTASKS=4"),
            (&[("WORLD_SIZE", "4"), ("RANK", "0"), ("LOCAL_RANK", "0")], "torchrun"),
        ] {
            let text = under(variables).unwrap();
            assert!(text.contains(mark) && text.contains("`mapwire run -n 4 -- ./prog`"), "{text}");
        }
        for silent in [
            &[][..],
            &[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3")],
            &[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")],
            &[("SLURM_NTASKS", "4")],
            &[("RANK", "0")],
        ] {
            assert_eq!(under(silent), None, "{silent:?}");
        }
    }
}
