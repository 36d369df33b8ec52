//! Runs the built `mapwire` in a folder of its own, watches the clock, and finds what it leaves.
#![allow(dead_code, unreachable_pub)] // Each test binary uses a part.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The program of the package whose test this is: each of them has one.
const PROGRAM: &str = match (
    option_env!("CARGO_BIN_EXE_mapwire"),
    option_env!("CARGO_BIN_EXE_mapwire-lab"),
    option_env!("CARGO_BIN_EXE_mapwire-bench"),
) {
    (Some(program), _, _) | (_, Some(program), _) | (_, _, Some(program)) => program,
    (None, None, None) => panic!("no program"),
};

/// Sees to it that the programs are there by which `mapwire bench`, `lab` and `sim` work: built like this one if they are not.
pub fn need_programs() {
    static BUILD: Once = Once::new();
    BUILD.call_once(|| {
        let folder = Path::new(PROGRAM).parent().unwrap();
        let names = ["mapwire-bench", "mapwire-lab"];
        if names.iter().all(|name| folder.join(name).exists()) {
            return;
        }
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", names[0], "-p", names[1]]);
        command.arg("--target-dir").arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            command.arg("--release");
        }
        let here = env!("CARGO_MANIFEST_DIR");
        let status = command.current_dir(here).status().unwrap();
        assert!(status.success(), "the other programs could not be built");
    });
}

/// Longer than anything here takes on a loaded machine.
pub const LONG: Duration = Duration::from_secs(60);

/// A folder that is removed at the end, and a mark that every process of the job carries.
pub struct Place {
    pub folder: PathBuf,
    pub mark: String,
}

impl Place {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("mapwire-test-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&mark);
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder, mark }
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(PROGRAM), args)
    }

    /// A command in the place's folder and with its mark.
    pub fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MAPWIRE_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(&self.folder)
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env("MARK", &self.mark)
            .env_remove("COLUMNS")
            .stdin(Stdio::null());
        command
    }

    /// Starts `mapwire ARGS`.
    pub fn start(&self, args: &[&str]) -> Running {
        Running::of(self.command(args))
    }

    /// Runs `mapwire ARGS` to its end.
    pub fn run(&self, args: &[&str]) -> Done {
        self.start(args).wait()
    }

    /// What the program ARGS says and how it ends when its standard output goes to `target`.
    pub fn run_into(&self, args: &[&str], target: Stdio) -> (i32, String) {
        let mut command = self.command(args);
        let output = command.stdout(target).stderr(Stdio::piped());
        let output = output.spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), said)
    }

    /// It fails where its output finds the disk full, and says so; it ends quietly where nobody reads.
    pub fn prints_as_commands_do(&self, args: &[&str]) {
        let full = std::fs::File::create("/dev/full").unwrap();
        let (code, said) = self.run_into(args, full.into());
        assert_eq!(code, 1, "{args:?}: {said}");
        assert!(said.contains("No space left on device"), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, said) = self.run_into(args, writer.into());
        assert_eq!((code, said.as_str()), (0, ""), "{args:?}");
    }

    /// What it prints fits into so many columns.
    pub fn fits(&self, args: &[&str], columns: usize) {
        let mut command = self.command(args);
        command.env("COLUMNS", columns.to_string());
        let done = Running::of(command).wait().code(0);
        for line in done.out().lines() {
            let unbroken = line.trim().split(' ').count() == 1;
            assert!(line.chars().count() <= columns || unbroken, "{columns}: {line}");
        }
    }

    /// Runs the shell text on `ranks` ranks.
    pub fn sh(&self, ranks: u32, text: &str) -> Done {
        self.run(&["run", "-n", &ranks.to_string(), "--", "sh", "-c", text])
    }

    pub fn start_sh(&self, ranks: u32, text: &str) -> Running {
        self.start(&["run", "-n", &ranks.to_string(), "--", "sh", "-c", text])
    }

    /// Processes that carry this place's mark.
    pub fn processes(&self) -> Vec<i32> {
        let wanted = format!("MARK={}", self.mark);
        let holds = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.split(|b| *b == 0).any(|v| v == wanted.as_bytes()))
        };
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .filter(holds)
            .collect()
    }

    /// Nothing is left but processes whose command line holds this word.
    pub fn assert_empty_but_for(&self, word: &str) {
        let left = self.processes().into_iter().map(describe);
        let left: Vec<String> = left.filter(|line| !line.contains(word)).collect();
        assert!(left.is_empty(), "left: {left:?}");
    }

    /// Nothing of the job is left. `mapwire` itself has ended, so nothing is still being ended.
    pub fn assert_empty(&self) {
        let left: Vec<String> = self.processes().iter().map(|pid| describe(*pid)).collect();
        assert!(left.is_empty(), "left: {left:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn describe(pid: i32) -> String {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid} {}", line.replace('\0', " "))
}

pub fn signal(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// The state letter of `/proc/pid/stat`.
pub fn state(pid: i32) -> Option<char> {
    stat(pid).and_then(|fields| fields[0].chars().next())
}

/// Bytes that a process has written.
pub fn written(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let figure = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    figure.map_or(0, |figure| figure.parse().unwrap())
}

fn stat(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

pub fn children(parent: i32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|pid| stat(*pid).is_some_and(|f| f[1] == parent.to_string())).collect()
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A `mapwire` that runs.
pub struct Running {
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
    started: Instant,
}

/// One that has ended.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub took: Duration,
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

impl Running {
    pub fn of(mut command: Command) -> Self {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = collect(child.stdout.take().unwrap());
        let stderr = collect(child.stderr.take().unwrap());
        Self { child, stdout, stderr, started }
    }

    /// The process that the user knows.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The process that does the work.
    pub fn launcher(&self) -> i32 {
        let mut found = Vec::new();
        eventually("the launcher runs", || {
            found = children(self.pid());
            !found.is_empty()
        });
        found[0]
    }

    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    pub fn wait(mut self) -> Done {
        let end = Instant::now() + LONG;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > end {
                let _ = self.child.kill();
                panic!("mapwire does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        use std::os::unix::process::ExitStatusExt;
        Done {
            code: status.code().unwrap_or_else(|| -status.signal().unwrap_or(0)),
            stdout: self.stdout.join().unwrap(),
            stderr: self.stderr.join().unwrap(),
            took: self.started.elapsed(),
        }
    }
}

impl Done {
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Lines of stdout in a fixed order.
    pub fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out(), self.err());
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.err().contains(text), "`{text}` is not in: {}", self.err());
        self
    }
}

/// This test program: run with `rank_program` arguments, a test of it becomes a rank.
pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Arguments that make the ignored test `name` of this program, by its path, the body of each rank.
pub fn as_rank(name: &str) -> Vec<String> {
    let program = this_program();
    let text = |s: &str| s.to_owned();
    vec![
        program.to_str().unwrap().to_owned(),
        text("--exact"),
        text(name),
        text("--ignored"),
        text("--nocapture"),
        text("--test-threads=1"),
    ]
}

/// The objects that a command has printed, one a line.
pub fn json_rows(done: &Done) -> Vec<serde_json::Value> {
    let object = |line: &str| serde_json::from_str(line).unwrap();
    done.out().lines().map(object).collect()
}
