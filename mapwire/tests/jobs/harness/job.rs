//! Starts jobs of real processes: `mapwire run -n N -- <this test program>`, watches the clock, and finds what they leave.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mapwire_testing::OpenFolder;
use rustix::process::{Pid, Signal, kill_process};

use super::leaks;
use super::rank::{self, Rank};

/// The variable that makes this program a rank: it holds the label of the job that the test started.
pub(crate) const LABEL: &str = "MAPWIRE_TEST_LABEL";
/// Every process of a job carries its mark, and is found by it.
pub(crate) const MARK: &str = "MAPWIRE_TEST_MARK";
/// The folder of the job's notes.
pub(crate) const FOLDER: &str = "MAPWIRE_TEST_FOLDER";

/// Far longer than any job here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(150);
/// The timeout of jobs, in seconds, unless a test sets it: beyond the limit, so that a job that waits in vain does not pass.
const TIMEOUT: &str = "200";

/// A job about to be started.
pub(crate) struct Job {
    ranks: u32,
    label: String,
    options: Vec<String>,
    variables: Vec<(String, String)>,
    unprivileged: bool,
    descriptors: Option<u32>,
    disturbance: Option<(String, Signal)>,
}

/// A job of `ranks` ranks. Each becomes this test program with the calling test alone, and comes back here.
pub(crate) fn job(ranks: u32) -> Job {
    Job {
        ranks,
        label: String::new(),
        options: Vec::new(),
        variables: Vec::new(),
        unprivileged: false,
        descriptors: None,
        disturbance: None,
    }
}

impl Job {
    /// Tells the jobs of one test apart.
    pub(crate) fn called(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// An option of `mapwire run`.
    pub(crate) fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// A variable for the ranks.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Runs launcher and ranks as a user without privileges, if this program has any.
    pub(crate) fn unprivileged(mut self) -> Self {
        self.unprivileged = true;
        self
    }

    /// Lets launcher and ranks open so many files at most.
    pub(crate) fn descriptors(mut self, most: u32) -> Self {
        self.descriptors = Some(most);
        self
    }

    /// Sends the launcher a signal as soon as a note is there.
    pub(crate) fn signalled(mut self, note: &str, signal: Signal) -> Self {
        self.disturbance = Some((note.to_owned(), signal));
        self
    }

    /// Runs `body` as every rank, each in a process of its own. Returns when the job is over and has left nothing.
    ///
    /// In a rank it does not return; in a rank of another job of the same test it returns at once.
    #[track_caller]
    pub(crate) fn run(self, body: impl FnOnce(&Rank)) -> Done {
        if let Ok(label) = std::env::var(LABEL) {
            if label == self.label {
                rank::be(body);
            }
            return Done::of_another_job();
        }
        let place = Place::new();
        let before = leaks::Surroundings::now();
        let running = Running::start(self.command(&place));
        if let Some((note, signal)) = &self.disturbance {
            let path = place.folder.join(note);
            super::eventually(note, || path.exists());
            let pid = Pid::from_raw(running.child.id() as i32).expect("a process");
            kill_process(pid, *signal).expect("a signal");
        }
        let done = running.wait(&place);
        leaks::check(&place, &before);
        if std::env::var_os("JOBS_VERBOSE").is_some() {
            println!("{}: {}", self.label, done.story());
        }
        done
    }

    fn command(&self, place: &Place) -> Command {
        let program = std::env::current_exe().expect("the path of this program");
        let other_user = self.unprivileged && rustix::process::geteuid().is_root();
        let (launcher, program) = match other_user {
            false => (launcher().to_owned(), program),
            true => (place.open.copy_of(launcher()), place.open.copy_of(&program)),
        };
        let mut command = match self.descriptors {
            None => Command::new(launcher),
            Some(most) => {
                let mut shell = Command::new("sh");
                let limited = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(limited).arg(launcher);
                shell
            }
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MAPWIRE_") {
                command.env_remove(name);
            }
        }
        command.args(["run", "-n", &self.ranks.to_string()]).args(&self.options);
        // To try tests that do not choose over another transport.
        if let Ok(transport) = std::env::var("JOBS_TRANSPORT")
            && !self.options.iter().any(|option| option == "--transport")
        {
            command.args(["--transport", &transport]);
        }
        command.arg("--").arg(program);
        command.args(["--exact", &this_test(), "--nocapture", "--test-threads=1", "--include-ignored"]);
        command
            .env("XDG_CONFIG_HOME", place.folder.join("config"))
            .env("RUST_BACKTRACE", "0")
            .env("MAPWIRE_TIMEOUT", TIMEOUT)
            // Most tests of shared memory are of the protocol; those of the processor's way say so.
            .env("MAPWIRE_COHERENCE", "minipages")
            .env(LABEL, &self.label)
            .env(MARK, &place.mark)
            .env(FOLDER, &place.folder)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(&place.folder)
            .stdin(Stdio::null());
        if other_user {
            const NOBODY: u32 = 65_534;
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

/// Whether this process is a rank, of whichever job: what a test does with the outcome of a job is not for it.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(LABEL).is_some()
}

/// The path of the calling test: libtest names its threads so.
fn this_test() -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("main");
    assert!(name != "main", "tests run in threads of their own");
    name.to_owned()
}

/// The launcher, built like this program: the workspace's binary `mapwire`, or what `MAPWIRE_LAUNCHER` names.
pub(crate) fn launcher() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os("MAPWIRE_LAUNCHER") {
            return path.into();
        }
        let program = std::env::current_exe().expect("the path of this program");
        // target/<profile>/deps/<this program>
        let profile = program.ancestors().nth(2).expect("a folder of the profile").to_owned();
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

/// A folder for the notes of a job, removed at the end, and the mark that its processes carry.
pub(crate) struct Place {
    /// Ranks of another user run from here.
    open: OpenFolder,
    pub(crate) folder: PathBuf,
    pub(crate) mark: String,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("mapwire-jobs-{}-{number}", std::process::id());
        let open = OpenFolder::new();
        // Ranks that give up root leave notes too, and change no other's.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(open.path(), all).expect("a folder open to all");
        Self { folder: open.path().to_owned(), open, mark }
    }

    /// Processes that carry the mark.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let wanted = format!("{MARK}={}", self.mark);
        let holds = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.split(|byte| *byte == 0).any(|v| v == wanted.as_bytes()))
        };
        leaks::numbers_in("/proc").filter(holds).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.processes() {
            leaks::kill(pid);
        }
    }
}

struct Running {
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
    started: Instant,
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

impl Running {
    fn start(mut command: Command) -> Self {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mapwire");
        let stdout = collect(child.stdout.take().expect("a pipe"));
        let stderr = collect(child.stderr.take().expect("a pipe"));
        Self { child, stdout, stderr, started }
    }

    #[track_caller]
    fn wait(mut self, place: &Place) -> Done {
        // A computer that stands still for a while has the job stand still with it: of a look that comes late, little counts.
        let (mut waited, mut looked) = (Duration::ZERO, Instant::now());
        let (status, hung) = loop {
            if let Some(status) = self.child.try_wait().expect("the state of a child") {
                break (status, None);
            }
            waited += looked.elapsed().min(Duration::from_millis(100));
            looked = Instant::now();
            if waited > LIMIT {
                let report = leaks::describe_all(&place.processes());
                for pid in place.processes() {
                    leaks::kill(pid);
                }
                let _ = self.child.kill();
                break (self.child.wait().expect("the end of a child"), Some(report));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text = |bytes: JoinHandle<Vec<u8>>| String::from_utf8_lossy(&bytes.join().expect("a reader")).into_owned();
        let done = Done {
            another: false,
            code: status.code().unwrap_or_else(|| -status.signal().unwrap_or(0)),
            out: text(self.stdout),
            err: text(self.stderr),
            took: self.started.elapsed(),
        };
        if let Some(report) = hung {
            panic!("the job does not end.\n{report}\n{}", done.story());
        }
        done
    }
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Not this process's job: nothing is known of it, and nothing asserted.
    another: bool,
    code: i32,
    out: String,
    err: String,
    took: Duration,
}

impl Done {
    fn of_another_job() -> Self {
        Self { another: true, code: 0, out: String::new(), err: String::new(), took: Duration::ZERO }
    }

    fn story(&self) -> String {
        format!("exit code {} after {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.took, self.out, self.err)
    }

    /// All ranks did what they should.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert!(self.another || self.code == code, "not {code}: {}", self.story());
        self
    }

    /// Standard error has this text.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        self.says_one_of(&[text])
    }

    /// Standard error has one of these texts.
    #[track_caller]
    pub(crate) fn says_one_of(self, texts: &[&str]) -> Self {
        let is_said = texts.iter().any(|text| self.err.contains(text));
        assert!(self.another || is_said, "{texts:?} is not said: {}", self.story());
        self
    }

    /// Standard output has this text that many times.
    #[track_caller]
    pub(crate) fn prints(self, text: &str, times: usize) -> Self {
        assert!(
            self.another || self.out.matches(text).count() == times,
            "`{text}` is not printed {times} times: {}",
            self.story()
        );
        self
    }

    /// It ended soon: not by some timeout.
    #[track_caller]
    pub(crate) fn soon(self) -> Self {
        assert!(self.took < LIMIT / 2, "slow: {}", self.story());
        self
    }
}
