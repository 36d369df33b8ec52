//! An installed mapwire in a folder outside the tree, and programs compiled against it.
#![allow(dead_code, unreachable_pub)] // Each test binary uses a part.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Compiler flags of all programs.
pub const FLAGS: &str = "-O2 -g -std=c11 -Wall -Wextra -Werror";

/// A bound on every program's time, even on a loaded machine.
const LONG: Duration = Duration::from_secs(120);

/// This crate's folder.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder that cargo builds into, and the name of the profile's folder in it.
fn target() -> (PathBuf, String) {
    // target/debug/deps/programs-0123
    let program = std::env::current_exe().unwrap();
    let profile = program.parent().and_then(Path::parent).unwrap();
    (profile.parent().unwrap().to_owned(), profile.file_name().unwrap().to_str().unwrap().to_owned())
}

fn profile() -> String {
    match target().1.as_str() {
        "debug" => "dev".to_owned(),
        other => other.to_owned(),
    }
}

/// A folder outside the tree, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mapwire-c-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command to its end, and fails unless it succeeds; returns its output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n--- output\n{out}\n--- errors\n{err}");
    out.into_owned()
}

/// A command without the variables that cargo, make and jobs set.
pub fn clean(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_make = ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"].contains(&&*text);
        if of_make || text.starts_with("MAPWIRE_") || text.starts_with("PKG_CONFIG") {
            command.env_remove(name);
        }
    }
    command
}

/// `make -C bindings/c`, for what this test run has built.
pub fn make(goal: &str, variables: &[&str]) -> Command {
    static BUILD: OnceLock<()> = OnceLock::new();
    let (target, _) = target();
    let make = |goal: &str| {
        let mut command = clean("make");
        command
            .arg("-C")
            .arg(here())
            .arg(goal)
            .arg(format!("PROFILE={}", profile()))
            .arg(format!("CARGO={}", env!("CARGO")))
            .env("CARGO_TARGET_DIR", &target);
        command
    };
    BUILD.get_or_init(|| {
        // With the features of this package alone, everything it uses would be compiled again.
        if std::env::var_os("WORKSPACE_IS_BUILT").is_none() {
            run(&mut make("all"));
        }
    });
    let mut command = make(goal);
    command.arg("BUILD=no").args(variables);
    command
}

/// The folder of the library that this test run has built.
pub fn built() -> PathBuf {
    make("all", &[]);
    let (target, folder) = target();
    target.join(folder)
}

/// The launcher; built if it does not exist.
pub fn launcher() -> PathBuf {
    static BUILD: OnceLock<PathBuf> = OnceLock::new();
    BUILD
        .get_or_init(|| {
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
        })
        .clone()
}

/// `mapwire run -n RANKS OPTIONS --`, to be completed by a program.
pub fn start(ranks: u32, options: &[&str]) -> Command {
    let mut command = clean("timeout");
    command
        .arg(LONG.as_secs().to_string())
        .arg(launcher())
        .args(["run", "-n", &ranks.to_string()])
        .args(options)
        .arg("--");
    command
}

/// The library with which programs are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    Shared,
    Static,
}

/// An installed mapwire; tests that run at the same time share it.
pub struct Installed {
    folder: Folder,
    linking: Linking,
}

impl Installed {
    pub fn get(linking: Linking) -> Arc<Self> {
        static HELD: [Mutex<Weak<Installed>>; 2] = [Mutex::new(Weak::new()), Mutex::new(Weak::new())];
        let mut held = HELD[linking as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = held.upgrade() {
            return installed;
        }
        let folder = Folder::new();
        let prefix = format!("PREFIX={}", folder.path().display());
        let only = match linking {
            Linking::Shared => "STATIC=no",
            Linking::Static => "SHARED=no",
        };
        run(&mut make("install", &[&prefix, only]));
        let installed = Arc::new(Self { folder, linking });
        *held = Arc::downgrade(&installed);
        installed
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `pkg-config`, restricted to this installation.
    pub fn pkg_config(&self, arguments: &[&str]) -> String {
        let mut command = clean("pkg-config");
        command.args(arguments).env("PKG_CONFIG_LIBDIR", self.path("lib/pkgconfig"));
        if self.linking == Linking::Static {
            command.arg("--static");
        }
        run(command.arg("mapwire"))
    }

    /// Compiles a program of tests/c, linked with the library.
    pub fn compile(&self, name: &str) -> Program<'_> {
        let libraries = self.pkg_config(&["--libs"]);
        let libraries: Vec<_> = libraries.split_whitespace().chain(["-pthread"]).collect();
        self.compile_with(name, &libraries)
    }

    /// Compiles a program of tests/c, linked with `libraries`.
    pub fn compile_with(&self, name: &str, libraries: &[&str]) -> Program<'_> {
        let folder = Folder::new();
        let program = folder.path().join(name);
        let of_cpp = here().join(format!("tests/c/{name}.cpp"));
        let (mut compiler, source) = match of_cpp.exists() {
            true => (clean("c++"), of_cpp),
            false => (clean("cc"), here().join(format!("tests/c/{name}.c"))),
        };
        let flags = if compiler.get_program() == "cc" { FLAGS } else { "-std=c++17 -Wall -Wextra -Werror -g" };
        run(compiler
            .args(flags.split(' '))
            .args(self.pkg_config(&["--cflags"]).split_whitespace())
            .arg("-o")
            .arg(&program)
            .arg(source)
            .args(libraries)
            .current_dir(folder.path()));
        Program { installed: self, folder, name: name.to_owned() }
    }

    /// Compiles an example with its own Makefile, from a copy.
    pub fn example(&self, name: &str) -> Program<'_> {
        self.example_with(name, &[])
    }

    /// As [`example`](Self::example), with variables for make.
    pub fn example_with(&self, name: &str, variables: &[&str]) -> Program<'_> {
        let folder = Folder::new();
        for file in ["Makefile", &format!("{name}.c")] {
            std::fs::copy(here().join("examples").join(file), folder.path().join(file)).unwrap();
        }
        let mut make = clean("make");
        make.arg("-C")
            .arg(folder.path())
            .arg(name)
            .arg(format!("CFLAGS={FLAGS}"))
            .args(variables)
            .env("PKG_CONFIG_LIBDIR", self.path("lib/pkgconfig"));
        if self.linking == Linking::Static {
            make.arg("STATIC=yes");
        }
        run(&mut make);
        Program { installed: self, folder, name: name.to_owned() }
    }
}

/// A compiled program.
pub struct Program<'a> {
    installed: &'a Installed,
    folder: Folder,
    name: String,
}

impl Program<'_> {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Path of its library.
    pub fn library(&self) -> PathBuf {
        self.installed.path("lib")
    }

    /// `mapwire run -n RANKS OPTIONS -- PROGRAM ARGUMENTS`, which must succeed; its output.
    #[track_caller]
    pub fn run(&self, ranks: u32, options: &[&str], arguments: &[&str]) -> String {
        self.run_under(&[], ranks, options, arguments)
    }

    /// As [`run`](Self::run), with each rank run by `tool`.
    #[track_caller]
    pub fn run_under(&self, tool: &[&str], ranks: u32, options: &[&str], arguments: &[&str]) -> String {
        run(start(ranks, options)
            .args(tool)
            .arg(self.path())
            .args(arguments)
            .env("LD_LIBRARY_PATH", self.installed.path("lib"))
            .current_dir(self.folder.path()))
    }
}
