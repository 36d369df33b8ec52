//! Runs the programs, alone and as jobs of several ranks.

#![allow(dead_code, reason = "each test program uses a part of what they have in common")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// Output and exit of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        Self {
            code: status.code().unwrap_or(-1),
            out: String::from_utf8(stdout).expect("text"),
            err: String::from_utf8(stderr).expect("text"),
        }
    }

    /// Its output; fails unless it succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// The row of figures that it printed; fails unless it succeeded.
    #[track_caller]
    pub(crate) fn row(self) -> serde_json::Value {
        let out = self.ok();
        assert_eq!(out.lines().count(), 1, "{out}");
        serde_json::from_str(&out).expect("a row of JSON")
    }
}

/// The path of a program of this crate.
pub(crate) fn program(name: &str) -> &'static str {
    match name {
        "tsp" => env!("CARGO_BIN_EXE_tsp"),
        "sor" => env!("CARGO_BIN_EXE_sor"),
        "is" => env!("CARGO_BIN_EXE_is"),
        "lu" => env!("CARGO_BIN_EXE_lu"),
        "lu-nc" => env!("CARGO_BIN_EXE_lu-nc"),
        "radix" => env!("CARGO_BIN_EXE_radix"),
        "tasks" => env!("CARGO_BIN_EXE_tasks"),
        "nbody" => env!("CARGO_BIN_EXE_nbody"),
        _ => panic!("no program {name}"),
    }
}

/// Runs `line`, a program and its arguments, outside any job.
pub(crate) fn run(line: &str) -> Ended {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a program");
    let mut command = clean(program(name));
    command.args(words);
    Ended::of(command.output().expect("the program starts"))
}

/// Runs `line` as a job: `options` are those of `mapwire run`, and lines come untagged.
pub(crate) fn run_job(options: &str, line: &str) -> Ended {
    let options: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
    start_job(&options, line).wait()
}

pub(crate) struct Job(Child);

/// Starts `line` as a job.
pub(crate) fn start_job(options: &[String], line: &str) -> Job {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a program");
    let mut command = clean(launcher());
    command.args(["run", "--no-tag"]);
    command.args(options);
    command.args(["--", program(name)]).args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Job(command.spawn().expect("the launcher starts"))
}

impl Job {
    pub(crate) fn wait(self) -> Ended {
        Ended::of(self.0.wait_with_output().expect("the job ends"))
    }
}

/// A command that no setting around this test affects.
pub(crate) fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MAPWIRE_") {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// The launcher: what `MAPWIRE_LAUNCHER` names, or the workspace's own, built like the programs.
fn launcher() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os("MAPWIRE_LAUNCHER") {
            return path.into();
        }
        // target/<profile>/<program>
        let profile = PathBuf::from(program("tsp"));
        let profile = profile.parent().expect("a folder of the profile");
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", "mapwire-cli", "--bin", "mapwire"]);
        command.arg("--target-dir").arg(profile.parent().expect("a target folder"));
        if profile.ends_with("release") {
            command.arg("--release");
        }
        let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
        assert!(status.success(), "the launcher could not be built");
        profile.join("mapwire")
    })
}
