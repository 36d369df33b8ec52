//! Which launcher started this process, as its environment tells.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mapwire_names::{StoreAddress, secret};
use mapwire_transport::board::MAX_RANKS;

use crate::names::{Incarnation, JobName, Names};
use crate::pmi::Pmi;
use crate::pmix::Pmix;
use crate::{LaunchError, Launcher};

const JOB_NAME: &str = "MAPWIRE_JOB_NAME";
const INCARNATION: &str = "MAPWIRE_INCARNATION";

/// A launcher that the environment names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detected {
    /// PMIx: mpirun and prterun, `srun --mpi=pmix`.
    Pmix { namespace: String, rank: u32 },
    /// A store of names, in which the processes of a job meet.
    Names(NamedJob),
    /// PMI-1 or PMI-2 over an inherited descriptor: `srun --mpi=pmi2`, MPICH's mpiexec.
    Pmi { fd: i32, rank: u32, size: u32 },
}

/// A job that `MAPWIRE_JOB_NAME` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedJob {
    pub name: JobName,
    /// The store; of `MAPWIRE_NAMES`.
    pub store: StoreAddress,
    /// The file of the shared secret; of `MAPWIRE_SECRET_FILE`.
    pub secret_file: PathBuf,
    /// Ranks in the job; of `MAPWIRE_SIZE`.
    pub size: u32,
    /// This process's rank, of `MAPWIRE_RANK`; `None`: any.
    pub rank: Option<u32>,
    /// The incarnation in which `mapwire run --names` has claimed the rank; of `MAPWIRE_INCARNATION`.
    pub incarnation: Option<Incarnation>,
}

/// Looks for a launcher: a job by its name first, then PMIx, then PMI-2 and PMI-1, then Slurm alone, which is an error for more than one rank.
/// `None`: nothing of the kind started this process. Reads variables only.
///
/// # Errors
/// [`LaunchError::Variable`], [`LaunchError::NoExchange`].
pub fn detect() -> Result<Option<Detected>, LaunchError> {
    detect_in(&|name| std::env::var_os(name))
}

fn detect_in(variable: &dyn Fn(&'static str) -> Option<OsString>) -> Result<Option<Detected>, LaunchError> {
    let number = |name| variable(name).map(|value| read_number(name, &value)).transpose();
    let needed = |name| number(name)?.ok_or_else(|| wrong(name, OsStr::new(""), "a number"));
    if let Some(name) = variable(JOB_NAME).filter(|name| !name.is_empty()) {
        return named_job(variable, &name).map(|job| Some(Detected::Names(job)));
    }
    if let Some(namespace) = variable("PMIX_NAMESPACE") {
        let namespace = read_namespace(&namespace)?;
        let rank = needed("PMIX_RANK")?;
        return Ok(Some(Detected::Pmix { namespace, rank }));
    }
    if let Some(fd) = number("PMI_FD")? {
        let (rank, size) = (needed("PMI_RANK")?, needed("PMI_SIZE")?);
        if size == 0 || rank >= size {
            return Err(wrong("PMI_RANK", rank.to_string().as_ref(), "a number below that of PMI_SIZE"));
        }
        let fd = fd as i32;
        return Ok(Some(Detected::Pmi { fd, rank, size }));
    }
    // A batch script has a SLURM_PROCID too, but is no task of a step.
    if variable("SLURM_STEP_ID").is_some() && variable("SLURM_PROCID").is_some() {
        let ranks = number("SLURM_STEP_NUM_TASKS")?.unwrap_or(1);
        if ranks > 1 {
            return Err(LaunchError::NoExchange { ranks });
        }
    }
    Ok(None)
}

fn named_job(variable: &dyn Fn(&'static str) -> Option<OsString>, name: &OsStr) -> Result<NamedJob, LaunchError> {
    let text = |name| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some(value.to_string_lossy().into_owned())
    };
    let wrong = |name, expected| LaunchError::Setting {
        name,
        value: text(name).unwrap_or_default().chars().take(80).collect(),
        expected,
    };
    let number = |name, expected| match text(name) {
        None => Ok(None),
        Some(value) => value.parse::<u32>().map(Some).map_err(|_| wrong(name, expected)),
    };
    let expected = "the number of ranks in the job, as MAPWIRE_JOB_NAME is set";
    let size = number("MAPWIRE_SIZE", expected)?;
    let size = size.filter(|size| (1..=MAX_RANKS).contains(size));
    let size = size.ok_or_else(|| wrong("MAPWIRE_SIZE", expected))?;
    let expected = "a number below that of MAPWIRE_SIZE, or nothing";
    let rank = number("MAPWIRE_RANK", expected)?;
    if rank.is_some_and(|rank| rank >= size) {
        return Err(wrong("MAPWIRE_RANK", expected));
    }
    let incarnation = match text(INCARNATION) {
        None => None,
        Some(value) => {
            let wrong = |()| wrong(INCARNATION, "what `mapwire run --names` sets");
            Some(value.parse().map_err(wrong)?)
        }
    };
    let (store, secret_file) = store_in(variable, None, None)?;
    Ok(NamedJob { name: name.to_string_lossy().parse()?, store, secret_file, size, rank, incarnation })
}

/// The store and the file of the secret: as given, else of variables, else the usual ones.
fn store_in(
    variable: &dyn Fn(&'static str) -> Option<OsString>,
    store: Option<&str>,
    secret_file: Option<&Path>,
) -> Result<(StoreAddress, PathBuf), LaunchError> {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    let named = || variable("MAPWIRE_NAMES").map(|text| text.to_string_lossy().into_owned());
    let store = store.map(ToOwned::to_owned).or_else(named);
    let file = secret_file.map(ToOwned::to_owned).or_else(|| variable("MAPWIRE_SECRET_FILE").map(Into::into));
    let store = store.map_or(Ok(StoreAddress::default()), |text| text.parse())?;
    Ok((store, file.unwrap_or_else(secret::usual_path)))
}

impl NamedJob {
    /// The store and the file of the secret: as given, else of `MAPWIRE_NAMES` and `MAPWIRE_SECRET_FILE`, else the usual ones.
    ///
    /// # Errors
    /// The address makes no sense.
    pub fn store_of(store: Option<&str>, secret_file: Option<&Path>) -> Result<(StoreAddress, PathBuf), LaunchError> {
        store_in(&|name| std::env::var_os(name), store, secret_file)
    }

    /// The variables by which a rank that `mapwire run --names` starts learns of its job.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![
            (JOB_NAME, self.name.to_string().into()),
            ("MAPWIRE_NAMES", self.store.to_string().into()),
            ("MAPWIRE_SECRET_FILE", self.secret_file.clone().into()),
            ("MAPWIRE_SIZE", self.size.to_string().into()),
        ];
        let rank = self.rank.map(|rank| ("MAPWIRE_RANK", rank.to_string().into()));
        let incarnation = self.incarnation.as_ref();
        let incarnation = incarnation.map(|it| (INCARNATION, it.to_string().into()));
        variables.extend(rank.into_iter().chain(incarnation));
        variables
    }
}

/// Refuses a variable of a launcher.
fn wrong(name: &'static str, value: &OsStr, expected: &'static str) -> LaunchError {
    LaunchError::Variable { name, value: value.to_string_lossy().chars().take(64).collect(), expected }
}

/// A number of ranks or of a descriptor: no launcher's exceeds `i32`.
fn read_number(name: &'static str, value: &OsStr) -> Result<u32, LaunchError> {
    let number = value.to_str().and_then(|text| text.parse::<u32>().ok());
    number.filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| wrong(name, value, "a number"))
}

fn read_namespace(value: &OsStr) -> Result<String, LaunchError> {
    let text = value.to_str().filter(|text| (1..=255).contains(&text.len()));
    text.map(str::to_owned).ok_or_else(|| wrong("PMIX_NAMESPACE", value, "1 to 255 bytes of text"))
}

impl Detected {
    /// Connects to the launcher, once in a process.
    ///
    /// # Errors
    /// [`LaunchError`].
    pub fn join(&self, timeout: Duration) -> Result<Box<dyn Launcher>, LaunchError> {
        match self {
            Self::Pmix { namespace, rank } => Ok(Box::new(Pmix::join(namespace, *rank, timeout)?)),
            Self::Names(job) => Ok(Box::new(Names::join(job, timeout)?)),
            Self::Pmi { fd, rank, size } => {
                let socket = crate::inherited::socket(*fd)?;
                Ok(Box::new(Pmi::join(socket, *rank, *size, timeout)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect_with(variables: &[(&str, &str)]) -> Result<Option<Detected>, LaunchError> {
        detect_in(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn without_variables_there_is_no_launcher() {
        assert_eq!(detect_with(&[]).unwrap(), None);
    }

    #[test]
    fn pmix_is_preferred_to_pmi_and_pmi_to_slurm_alone() {
        let all = [
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("PMI_FD", "7"),
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "4"),
            ("PMIX_NAMESPACE", "job"),
            ("PMIX_RANK", "2"),
        ];
        let namespace = "job".to_owned();
        let pmix = Detected::Pmix { namespace, rank: 2 };
        assert_eq!(detect_with(&all).unwrap(), Some(pmix));
        let (fd, rank, size) = (7, 1, 4);
        let pmi = Detected::Pmi { fd, rank, size };
        assert_eq!(detect_with(&all[..6]).unwrap(), Some(pmi));
        let slurm = detect_with(&all[..3]).unwrap_err();
        assert!(matches!(slurm, LaunchError::NoExchange { ranks: 4 }));
        assert!(slurm.to_string().contains("--mpi=pmi2"));
    }

    #[test]
    fn a_batch_script_and_a_step_of_one_are_no_launcher() {
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(detect_with(&batch).unwrap(), None);
        let one = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(detect_with(&one).unwrap(), None);
    }

    #[test]
    fn a_job_that_the_environment_names_is_preferred_to_launchers_and_told_on_as_it_is() {
        let some =
            [("PMI_FD", "7"), ("MAPWIRE_JOB_NAME", "sor.1"), ("MAPWIRE_SIZE", "4"), ("MAPWIRE_SECRET_FILE", "/s")];
        let Ok(Some(Detected::Names(mut job))) = detect_with(&some) else {
            panic!();
        };
        assert_eq!((job.size, job.rank, &job.incarnation), (4, None, &None));
        assert_eq!(job.store.to_string(), "mapwire://127.0.0.1:6277");
        job.rank = Some(3);
        job.store = "etcd://a,b".parse().unwrap();
        job.incarnation = format!("{}-9", "0f".repeat(16)).parse().ok();
        assert!(job.incarnation.is_some());
        let told = job.variables();
        let told: Vec<_> = told.iter().map(|(name, value)| (*name, value.to_str().unwrap())).collect();
        assert_eq!(detect_with(&told).unwrap(), Some(Detected::Names(job)));
    }

    #[test]
    fn a_named_job_without_a_size_or_with_nonsense_says_which_variable() {
        for (name, value) in [
            ("MAPWIRE_SIZE", ""),
            ("MAPWIRE_SIZE", "0"),
            ("MAPWIRE_SIZE", "5000"),
            ("MAPWIRE_RANK", "2"),
            ("MAPWIRE_RANK", "-1"),
            ("MAPWIRE_INCARNATION", "12"),
            ("MAPWIRE_NAMES", "there"),
            ("MAPWIRE_JOB_NAME", "a/b"),
        ] {
            let good = [("MAPWIRE_JOB_NAME", "a"), ("MAPWIRE_SIZE", "2")];
            let all: Vec<_> = [(name, value)].into_iter().chain(good).collect();
            let error = detect_with(&all).unwrap_err().to_string();
            assert!(error.contains(name) || error.contains(value) && !value.is_empty(), "{error}");
        }
    }

    #[test]
    fn a_variable_that_makes_no_sense_is_named_with_its_value() {
        let cases: [&[(&str, &str)]; 6] = [
            &[("PMI_FD", "seven")],
            &[("PMI_FD", "4294967295")],
            &[("PMI_FD", "7"), ("PMI_RANK", "-1"), ("PMI_SIZE", "2")],
            &[("PMI_FD", "7"), ("PMI_SIZE", "2"), ("PMI_RANK", "2")],
            &[("PMIX_RANK", "x"), ("PMIX_NAMESPACE", "job")],
            &[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "")],
        ];
        for case in cases {
            let error = detect_with(case).unwrap_err();
            let LaunchError::Variable { name, value, .. } = &error else {
                panic!("{case:?}: {error}");
            };
            assert!(case.contains(&(name, value)), "{case:?}: {error}");
        }
    }
}
