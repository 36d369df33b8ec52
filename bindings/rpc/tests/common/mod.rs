//! Programs that rpcgen makes at test time, linked with the library that this test run has built.
#![allow(dead_code, unreachable_pub)] // Each test binary uses a part.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mapwire_testing::OpenFolder;

/// A bound on every program's time, even on a loaded machine.
pub const LONG: Duration = Duration::from_secs(60);

/// This crate's folder.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether these tests' requirements are installed; prints a line if not.
pub fn is_equipped() -> bool {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|found| found.status.success())
    };
    let is_there = has("rpcgen") && has("cc") && Path::new("/usr/include/tirpc/rpc/rpc.h").exists();
    if !is_there {
        mapwire_testing::skip!(
            "rpcgen (rpcsvc-proto), cc and libtirpc-dev are needed; scripts/setup.sh --tests installs them"
        );
    }
    is_there
}

/// A command without the variables that cargo, make and users set.
pub fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_make = ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"].contains(&&*text);
        if of_make || text.starts_with("MAPWIRE_") || text.starts_with("PKG_CONFIG") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end, and fails unless it succeeds; returns its output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n--- output\n{out}\n--- errors\n{err}");
    out.into_owned()
}

/// The folder that cargo builds into, and the profile's name and folder in it.
fn target() -> (PathBuf, String) {
    // target/debug/deps/programs-0123
    let program = std::env::current_exe().unwrap();
    let profile = program.parent().and_then(Path::parent).unwrap();
    (profile.parent().unwrap().to_owned(), profile.file_name().unwrap().to_str().unwrap().to_owned())
}

/// The profile's name.
pub fn profile() -> String {
    match target().1.as_str() {
        "debug" => "dev".to_owned(),
        other => other.to_owned(),
    }
}

/// The folder of the library that this test run has built.
pub fn built() -> PathBuf {
    static BUILD: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let (target, folder) = target();
        // With the features of this package alone, everything it uses would be compiled again.
        if std::env::var_os("WORKSPACE_IS_BUILT").is_none() {
            run(clean(env!("CARGO"))
                .args(["build", "--package", "mapwire-rpc-c", "--profile"])
                .arg(profile())
                .current_dir(here())
                .env("CARGO_TARGET_DIR", &target));
        }
        target.join(folder)
    };
    BUILD.get_or_init(build).clone()
}

/// The command `mapwire`; built if it does not exist.
pub fn mapwire() -> PathBuf {
    static BUILD: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let (target, folder) = target();
        let path = target.join(folder).join("mapwire");
        if !path.exists() {
            run(clean(env!("CARGO"))
                .args(["build", "--package", "mapwire-cli", "--profile"])
                .arg(profile())
                .current_dir(here())
                .env("CARGO_TARGET_DIR", target));
        }
        path
    };
    BUILD.get_or_init(build).clone()
}

/// `make -C bindings/rpc`, for what this test run has built.
pub fn make(goal: &str, variables: &[&str]) -> Command {
    built();
    let mut command = clean("make");
    command
        .arg("-C")
        .arg(here())
        .arg(goal)
        .arg(format!("PROFILE={}", profile()))
        .arg("BUILD=no")
        .args(variables)
        .env("CARGO_TARGET_DIR", target().0);
    command
}

/// The examples and test programs in a folder of their own, with program numbers of their own: tests run concurrently, and all programs of
/// a user share one door for each number.
pub struct Programs {
    folder: OpenFolder,
    /// The calculator's program number.
    pub calc: u32,
    pub store: u32,
}

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// With libmapwire_rpc.so before libtirpc.
    Shared,
    /// With the archive before libtirpc.
    Static,
    /// With libtirpc alone.
    Without,
}

impl Programs {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(2, Ordering::Relaxed);
        let folder = OpenFolder::new();
        let calc = 0x2100_0000 + ((std::process::id() & 0xffff) << 8) + count;
        let this = Self { folder, calc, store: calc + 1 };
        let copy = |from: &str, name: &str| {
            let text = std::fs::read_to_string(here().join(from).join(name)).unwrap();
            let text = text
                .replace("0x20004d57", &format!("{:#x}", this.calc))
                .replace("0x20004d58", &format!("{:#x}", this.store));
            std::fs::write(this.path(name), text).unwrap();
        };
        for name in ["Makefile", "calc.x", "calc_client.c", "calc_server.c"] {
            copy("examples", name);
        }
        for name in ["store.x", "store_client.c", "store_server.c"] {
            copy("examples", name);
        }
        for name in ["check.c", "children.c", "first.c", "nested.c", "ports.c", "simple.c"] {
            copy("tests/c", name);
        }
        // Under the names that programs ask for.
        let library = built().join("libmapwire_rpc_c.so");
        for name in ["libmapwire_rpc.so", "libmapwire_rpc.so.0"] {
            std::os::unix::fs::symlink(&library, this.path(name)).unwrap();
        }
        this
    }

    /// As [`Programs::new`], for programs that another user runs: the library is in the folder too.
    pub fn for_another_user() -> Self {
        let this = Self::new();
        let library = this.folder.copy_of(built().join("libmapwire_rpc_c.so"));
        for name in ["libmapwire_rpc.so", "libmapwire_rpc.so.0"] {
            std::fs::remove_file(this.path(name)).unwrap();
            std::os::unix::fs::symlink(&library, this.path(name)).unwrap();
        }
        this
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn libraries(&self, linking: Linking) -> String {
        let folder = self.folder.path().display();
        match linking {
            Linking::Shared => {
                format!("-L{folder} -Wl,-rpath,{folder} -lmapwire_rpc -ltirpc -pthread")
            }
            Linking::Static => {
                format!("{} -ltirpc -lutil -lrt -lpthread -lm -ldl", built().join("libmapwire_rpc_c.a").display())
            }
            Linking::Without => "-ltirpc -pthread".to_owned(),
        }
    }

    /// Builds something by the examples' own makefile.
    pub fn make(&self, goal: &str, linking: Linking) -> PathBuf {
        run(clean("make")
            .arg("-C")
            .arg(self.folder.path())
            .arg(goal)
            .arg("RPC_CFLAGS=-I/usr/include/tirpc")
            .arg(format!("RPC_LIBS={}", self.libraries(linking))));
        self.path(goal)
    }

    /// Compiles a program of tests/c with what rpcgen has made.
    pub fn compile(&self, name: &str, parts: &[&str], linking: Linking) -> PathBuf {
        for part in ["calc.h"].iter().chain(parts) {
            self.make(part, linking);
        }
        run(clean("cc")
            .args(["-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror"])
            .args(["-Wno-unused-variable", "-Wno-cast-function-type", "-I/usr/include/tirpc", "-o", name])
            .arg(format!("{name}.c"))
            .args(parts)
            .args(self.libraries(linking).split(' '))
            .current_dir(self.folder.path()));
        self.path(name)
    }

    /// The program of many checks.
    pub fn check(&self) -> PathBuf {
        self.compile("check", &["calc_clnt.c", "calc_xdr.c"], Linking::Shared)
    }

    /// The server that says its ports.
    pub fn ports(&self, linking: Linking) -> PathBuf {
        self.compile("ports", &["calc_svc.c", "calc_server.c", "calc_xdr.c"], linking)
    }
}

/// A server process, killed on drop.
pub struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    /// Starts it, and waits until a program has its door.
    pub fn start(command: &mut Command, program: u32) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let this = Self { child, lines };
        wait_for_door(program, true);
        this
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until version 1 of a program has a door on this host, or no longer has one.
pub fn wait_for_door(program: u32, is_open: bool) {
    let name = format!("-rpc-{program}-1");
    let begun = Instant::now();
    loop {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        if sockets.lines().any(|line| line.ends_with(&name)) == is_open {
            return;
        }
        assert!(begun.elapsed() < LONG, "door {name}: not open={is_open}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `timeout PROGRAM`.
pub fn limited(program: &Path) -> Command {
    let mut command = clean("timeout");
    command.arg(LONG.as_secs().to_string()).arg(program);
    command
}

/// Asserts that the output contains every line of `wanted`.
#[track_caller]
pub fn says(output: &str, wanted: &[&str]) {
    for line in wanted {
        assert!(output.contains(line), "no \"{line}\" in:\n{output}");
    }
}
