//! Finding the program as `execvp` would, so that a mistake is told before any rank starts.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// A program that exists and may be executed, with its arguments.
pub(crate) struct Program {
    /// Where it is; absolute, or relative to the ranks' folder.
    pub(crate) path: PathBuf,
    /// As the user wrote it: the ranks' argument 0.
    pub(crate) name: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) wdir: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("{name}: program not found; {hint}")]
    NotFound { name: String, hint: String },
    #[error("{path}: is a folder, not a program", path = path.display())]
    Folder { path: PathBuf },
    #[error("{path}: may not be executed; to allow it: chmod +x {path}", path = path.display())]
    NotExecutable { path: PathBuf },
    #[error("{path}: cannot be looked at", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("--wdir {path}: cannot start ranks there", path = path.display())]
    Wdir { path: PathBuf, source: io::Error },
}

impl ProgramError {
    /// As a shell would say it: 127 not found, 126 found but not usable.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            _ => 126,
        }
    }
}

impl Program {
    /// Finds `command[0]`: with a slash, relative to `wdir`; without, in PATH.
    pub(crate) fn find(command: &[OsString], wdir: Option<&Path>) -> Result<Self, ProgramError> {
        if let Some(folder) = wdir {
            check_folder(folder)?;
        }
        let (name, arguments) = match command.split_first() {
            Some((name, arguments)) if !name.is_empty() => (name, arguments),
            _ => {
                return Err(ProgramError::NotFound { name: "``".into(), hint: "its name is empty".into() });
            }
        };
        let path = if name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            check_file(&wdir.unwrap_or(Path::new("")).join(&path), name)?;
            path
        } else {
            search(name, wdir.unwrap_or(Path::new("")))?
        };
        Ok(Self { path, name: name.clone(), arguments: arguments.to_vec(), wdir: wdir.map(Path::to_owned) })
    }
}

fn check_folder(folder: &Path) -> Result<(), ProgramError> {
    let wrong = |source| ProgramError::Wdir { path: folder.to_owned(), source };
    if !folder.metadata().map_err(wrong)?.is_dir() {
        return Err(wrong(io::ErrorKind::NotADirectory.into()));
    }
    access(folder, Access::EXEC_OK).map_err(|errno| wrong(errno.into()))
}

fn check_file(path: &Path, name: &OsStr) -> Result<(), ProgramError> {
    let path_buf = || path.to_owned();
    match path.metadata() {
        Ok(data) if data.is_dir() => Err(ProgramError::Folder { path: path_buf() }),
        Ok(data) if !data.is_file() || access(path, Access::EXEC_OK).is_err() => {
            Err(ProgramError::NotExecutable { path: path_buf() })
        }
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            let name = name.to_string_lossy().into_owned();
            Err(ProgramError::NotFound { name, hint: "no such file".into() })
        }
        Err(source) => Err(ProgramError::Unreadable { path: path_buf(), source }),
    }
}

/// Where the programs are that come with this command: beside it when it is built, in `lib/mapwire` when it is installed.
pub(crate) fn own_folders() -> impl Iterator<Item = PathBuf> {
    let command = std::env::current_exe().ok();
    let folder = command.and_then(|command| Some(command.parent()?.to_owned()));
    let installed = folder.as_ref().and_then(|folder| Some(folder.parent()?.join("lib/mapwire")));
    folder.into_iter().chain(installed)
}

fn search(name: &OsStr, wdir: &Path) -> Result<PathBuf, ProgramError> {
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/bin:/usr/bin".into());
    let mut unusable = None;
    for folder in std::env::split_paths(&folders).chain(own_folders()) {
        // An empty entry means the current folder.
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let path = folder.join(name);
        match check_file(&wdir.join(&path), name) {
            Ok(()) => return Ok(path),
            Err(error @ ProgramError::NotExecutable { .. }) => {
                unusable.get_or_insert(error);
            }
            Err(_) => {}
        }
    }
    let shown = name.to_string_lossy().into_owned();
    Err(unusable.unwrap_or_else(|| {
        let here = wdir.join(name).is_file();
        let hint = if here {
            format!("it is not in PATH, but here; write ./{shown}")
        } else {
            "it is in no folder of PATH, and does not come with mapwire".to_owned()
        };
        ProgramError::NotFound { name: shown, hint }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str, wdir: Option<&str>) -> Result<PathBuf, ProgramError> {
        Program::find(&[name.into()], wdir.map(Path::new)).map(|p| p.path)
    }

    #[test]
    fn a_name_without_a_slash_is_searched_in_path() {
        let path = find("sh", None).unwrap();
        assert!(path.is_absolute() && path.ends_with("sh"));
    }

    #[test]
    fn a_name_with_a_slash_is_taken_from_the_ranks_folder() {
        assert!(find("./sh", Some("/bin")).is_ok());
        assert_eq!(find("./sh", Some("/proc")).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn each_mistake_has_its_own_error_and_the_shells_exit_code() {
        let error = find("no-such-program-anywhere", None).unwrap_err();
        assert_eq!(error.exit_code(), 127);
        assert!(error.to_string().contains("no folder of PATH"), "{error}");
        assert_eq!(find("/proc", None).unwrap_err().exit_code(), 126);
        let error = find("/proc/version", None).unwrap_err();
        assert!(error.to_string().contains("chmod +x"), "{error}");
        let error = find("sh", Some("/no/such/folder")).unwrap_err();
        assert!(error.to_string().contains("--wdir /no/such/folder"), "{error}");
        assert_eq!(find("sh", Some("/proc/version")).unwrap_err().exit_code(), 126);
        assert_eq!(find("", None).unwrap_err().exit_code(), 127);
    }
}
