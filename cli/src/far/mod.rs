//! `mapwire far`: starts a program whose memory may be larger than what it gets of the RAM.
//!
//! The work is done in the program itself, by `libmapwire_far.so`, which this preloads.

mod elf;

use std::ffi::OsString;
use std::net::ToSocketAddrs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use mapwire::global::Lenders;
use mapwire_host::page::PAGE_BYTES;
use mapwire_launch::NamedJob;
use mapwire_names::StoreAddress;
use mapwire_names::address::HostPort;
use mapwire_settings::DIRECTORY;
use mapwire_settings::far::{COPIES, DISK, DONORS, FILES, LOCAL, SECRET, STATS};
use mapwire_settings::size::{self, SizeError};

use crate::args::FarArgs;
use crate::run::program::{Program, own_folders};
use crate::{Failure, failing};

const LIBRARY: &str = "libmapwire_far.so";
/// Less than this no pager works with: what one system call or one instruction touches must be in RAM at once.
const LEAST_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
enum FarError {
    #[error("--local")]
    Size(#[from] SizeError),
    #[error("--local {0}: too little; give at least 1M")]
    TooLittle(String),
    #[error("--local {0}: beyond the address space; give what this computer has")]
    TooMuch(String),
    #[error("--disk {folder}: cannot keep a file there", folder = .0.display())]
    Disk(PathBuf, #[source] std::io::Error),
    #[error("{LIBRARY} is missing: it belongs beside this command or into lib/mapwire; `make install` puts it there")]
    NoLibrary,
    #[error("{path} {why}, so that nothing can be preloaded: far memory is not for it", path = path.display())]
    Unsuited { path: PathBuf, why: &'static str },
    #[error("--donors")]
    Donors(#[from] Box<mapwire::Error>),
    #[error(
        "--copies {copies}: {found} donors at {store}; start more by `mapwire serve --donate SIZE --names {store}`"
    )]
    TooFewDonors { copies: u8, found: usize, store: StoreAddress },
    #[error("--donors {0}: the host has no address")]
    NoAddress(StoreAddress),
    #[error("{program}: cannot be started", program = program.display())]
    Start { program: PathBuf, source: std::io::Error },
}

impl FarError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Size(_) | Self::TooLittle(_) | Self::TooMuch(_) | Self::Disk(..) => 2,
            Self::NoLibrary | Self::Donors(_) | Self::TooFewDonors { .. } | Self::NoAddress(_) => 1,
            Self::Unsuited { .. } | Self::Start { .. } => 126,
        }
    }
}

/// `mapwire far`. Comes back only if the program is not started.
pub(crate) fn command(args: &FarArgs) -> Result<ExitCode, Failure> {
    let program = Program::find(&args.command, None).map_err(|error| failing(error.exit_code())(error))?;
    start(args, program).map_err(|error| failing(error.exit_code())(error))
}

fn start(args: &FarArgs, program: Program) -> Result<ExitCode, FarError> {
    let pages = pages(&args.local)?;
    let disk = folder(args.disk.clone())?;
    let library = library()?;
    let lenders = lenders(args)?;
    let path = program.path;
    if let Some(why) = elf::unsuited(&path) {
        return Err(FarError::Unsuited { path, why });
    }
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&path);
    command
        .arg0(&program.name)
        .args(&program.arguments)
        .env(LOCAL, pages.to_string())
        .env(DISK, disk)
        .env("LD_PRELOAD", preload);
    if let Some(lenders) = lenders {
        command
            .env(DONORS, lenders.store.to_string())
            .env(SECRET, lenders.secret_file)
            .env(COPIES, lenders.copies.to_string());
        if args.directory.is_some() {
            command.env(DIRECTORY, lenders.directory.name());
        }
    }
    if args.files {
        command.env(FILES, "1");
    }
    if args.stats {
        // The program has the number of this process.
        command.env(STATS, std::process::id().to_string());
    }
    Err(FarError::Start { source: command.exec(), program: path })
}

fn pages(text: &str) -> Result<u64, FarError> {
    let bytes = size::parse(text)?;
    match bytes {
        ..LEAST_BYTES => Err(FarError::TooLittle(text.to_owned())),
        // Addresses of user space.
        bytes if bytes > 1 << 47 => Err(FarError::TooMuch(text.to_owned())),
        bytes => Ok(bytes / PAGE_BYTES as u64),
    }
}

/// Where the file is made that holds what is not in RAM. /tmp is often in RAM itself.
fn folder(given: Option<PathBuf>) -> Result<OsString, FarError> {
    let folder = given.unwrap_or_else(|| "/var/tmp".into());
    let found = folder.canonicalize().and_then(|folder| match folder.is_dir() {
        true => Ok(folder),
        false => Err(std::io::ErrorKind::NotADirectory.into()),
    });
    match found {
        Ok(folder) => Ok(folder.into_os_string()),
        Err(error) => Err(FarError::Disk(folder, error)),
    }
}

/// Where donors are found, if they are asked for; there are enough of them now.
fn lenders(args: &FarArgs) -> Result<Option<Lenders>, FarError> {
    let Some(given) = args.donors.as_deref() else {
        return Ok(None);
    };
    let given = Some(given).filter(|given| !given.is_empty());
    let failed = |error: mapwire::Error| FarError::Donors(Box::new(error));
    let found = NamedJob::store_of(given, args.secret_file.as_deref());
    let (store, secret_file) = found.map_err(|error| failed(error.into()))?;
    let lenders = Lenders {
        // Programs may leave the folder, and should not have to look a name up while they wait for memory.
        store: by_address(store)?,
        secret_file: secret_file.canonicalize().unwrap_or(secret_file),
        copies: args.copies,
        directory: args.directory.unwrap_or_default(),
    };
    let found = lenders.donors().map_err(failed)?.len();
    if found < usize::from(args.copies) {
        return Err(FarError::TooFewDonors { copies: args.copies, found, store: lenders.store });
    }
    Ok(Some(lenders))
}

/// The store, with addresses in place of host names.
fn by_address(store: StoreAddress) -> Result<StoreAddress, FarError> {
    let resolve = |of: &HostPort| {
        let mut found = (of.host.as_str(), of.port).to_socket_addrs().ok()?;
        let host = found.next()?.ip().to_string();
        Some(HostPort { host, ..*of })
    };
    let resolved = match &store {
        StoreAddress::Server(of) => resolve(of).map(StoreAddress::Server),
        StoreAddress::Etcd(all) => {
            let all: Option<Vec<HostPort>> = all.iter().map(resolve).collect();
            all.map(StoreAddress::Etcd)
        }
    };
    resolved.ok_or(FarError::NoAddress(store))
}

fn library() -> Result<PathBuf, FarError> {
    let places = own_folders().map(|folder| folder.join(LIBRARY));
    let mut found = places.filter(|place| place.is_file());
    found.next().ok_or(FarError::NoLibrary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_sizes_of_a_mebibyte_or_more() {
        assert_eq!(pages("64M").unwrap(), 16_384);
        assert_eq!(pages("1048577").unwrap(), 256);
        for (text, said) in
            [("0", "too little"), ("4K", "too little"), ("128T", ""), ("129T", "beyond the address space")]
        {
            match pages(text) {
                Ok(_) => assert_eq!(said, "", "{text}"),
                Err(error) => assert!(error.to_string().contains(said), "{error}"),
            }
        }
        assert!(matches!(pages("12 apples"), Err(FarError::Size(_))));
    }

    #[test]
    fn the_file_lies_in_a_folder_that_is_there() {
        assert_eq!(folder(Some("/".into())).unwrap(), "/");
        for wrong in ["/proc/self/status", "/nowhere/at/all"] {
            let error = folder(Some(wrong.into())).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().starts_with(&format!("--disk {wrong}")));
        }
    }
}
