//! Files that appear under their name only when they are whole.

mod destination;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};

pub use destination::Destination;

/// A file that is written without a name, and gets its own by [`keep`](Self::keep). Dropped before, it leaves nothing, and what
/// stood under its name still does; nor does a process leave anything that is killed.
///
/// Links on the way are followed if they belong to this user or to root, and stay; links of other users are refused.
///
/// On a file system without nameless files it has a temporary name meanwhile, which a process that is killed leaves. A name that
/// belongs to a device or a pipe is written to directly, since it cannot be replaced.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    folder: OwnedFd,
    name: OsString,
    current_name: CurrentName,
    /// Written so far.
    bytes: u64,
}

/// Where a file is before it is kept.
#[derive(Debug)]
enum CurrentName {
    /// Under its own name: a device or a pipe.
    Itself,
    /// In its folder, without a name.
    Nameless,
    /// In its folder, under this name.
    Temporary(OsString),
}

/// Makes a file that is named by `make` and hidden, under a name made of `name` that no other has.
fn hidden<T>(name: &OsStr, mut make: impl FnMut(&OsStr) -> rustix::io::Result<T>) -> io::Result<(OsString, T)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{number}.part", std::process::id()));
        match make(&hidden) {
            Ok(made) => return Ok((hidden, made)),
            // Left by a process that was killed, and had this number.
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The name by which a nameless file can be linked.
fn link_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A file without a name in `folder`, where the system has such files.
fn nameless(folder: &OwnedFd) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(openat(folder, ".", flags, Mode::from(0o666)).ok()?);
    Path::new(&link_of(&file)).exists().then_some(file)
}

fn temporary(folder: &OwnedFd, name: &OsStr) -> io::Result<(File, CurrentName)> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
    let (name, file) = hidden(name, |name| openat(folder, name, flags, Mode::from(0o666)))?;
    Ok((file.into(), CurrentName::Temporary(name)))
}

impl WholeFile {
    /// Begins the file `path`.
    ///
    /// # Errors
    /// As [`Destination::find`]; the folder does not let a file be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_at(Destination::find(path)?)
    }

    /// Begins the file of a place that was found before.
    ///
    /// # Errors
    /// The folder does not let a file be made.
    pub fn create_at(at: Destination) -> io::Result<Self> {
        let Destination { folder, name, special } = at;
        let (file, current_name) = match special {
            Some(special) => (special, CurrentName::Itself),
            None => match nameless(&folder) {
                Some(file) => (file, CurrentName::Nameless),
                None => temporary(&folder, &name)?,
            },
        };
        Ok(Self { file, folder, name, current_name, bytes: 0 })
    }

    /// Lets nobody but its owner read the file. Call it before anything is written.
    ///
    /// # Errors
    /// The file system has no such modes.
    pub fn make_private(&self) -> io::Result<()> {
        match self.current_name {
            // It is there already, and not a file of ours.
            CurrentName::Itself => Ok(()),
            _ => Ok(rustix::fs::fchmod(&self.file, Mode::from(0o600))?),
        }
    }

    /// Gives the file its name, and tells how many bytes it has. It replaces the file that had the name.
    ///
    /// # Errors
    /// The system still had bytes to write, and could not; or it does not allow the name. Nothing is left then.
    pub fn keep(mut self) -> io::Result<u64> {
        self.file.flush()?;
        if matches!(self.current_name, CurrentName::Itself) {
            return Ok(self.bytes);
        }
        // A file system that writes late tells of a full disk here at the latest.
        self.file.sync_data()?;
        if matches!(self.current_name, CurrentName::Nameless) {
            // A link cannot replace a file, so it is hidden at first.
            let link = link_of(&self.file);
            let (name, ()) =
                hidden(&self.name, |name| linkat(CWD, &link, &self.folder, name, AtFlags::SYMLINK_FOLLOW))?;
            self.current_name = CurrentName::Temporary(name);
        }
        if let CurrentName::Temporary(name) = &self.current_name {
            renameat(&self.folder, name, &self.folder, &self.name)?;
            self.current_name = CurrentName::Itself;
        }
        self.bytes = self.file.metadata()?.len();
        Ok(self.bytes)
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let CurrentName::Temporary(name) = &self.current_name {
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Read for WholeFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes)
    }
}

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mapwire-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_kept() {
        let folder = Folder::new("kept");
        let path = folder.0.join("out");
        fs::write(&path, "old").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(file.keep().unwrap(), 3);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(folder.names(), ["out"]);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let folder = Folder::new("linked");
        let (link, target) = (folder.0.join("link"), folder.0.join("target"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut file = WholeFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.keep().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn a_file_that_is_dropped_leaves_nothing() {
        let folder = Folder::new("dropped");
        let path = folder.0.join("out");
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(folder.names(), Vec::<String>::new());
    }

    #[test]
    fn where_files_need_names_a_temporary_one_comes_and_goes() {
        let folder = Folder::new("temporary");
        let path = folder.0.join("out");
        let create = || {
            let Destination { folder, name, .. } = Destination::find(&path).unwrap();
            let (file, current_name) = temporary(&folder, &name).unwrap();
            WholeFile { file, folder, name, current_name, bytes: 0 }
        };
        let mut file = create();
        file.write_all(b"new").unwrap();
        assert!(folder.names()[0].ends_with(".part"));
        drop(file);
        assert_eq!(folder.names(), Vec::<String>::new());
        let mut file = create();
        file.write_all(b"new").unwrap();
        assert_eq!(file.keep().unwrap(), 3);
        assert_eq!(folder.names(), ["out"]);
    }

    #[test]
    fn a_file_without_a_name_is_not_seen_where_the_system_has_such_files() {
        let folder = Folder::new("nameless");
        let place = Destination::find(&folder.0.join("x")).unwrap();
        if nameless(&place.folder).is_some() {
            let mut file = WholeFile::create(&folder.0.join("out")).unwrap();
            file.write_all(b"new").unwrap();
            assert_eq!(folder.names(), Vec::<String>::new());
        }
    }

    #[test]
    fn a_device_is_written_to_and_stays_a_device() {
        let mut file = WholeFile::create(Path::new("/dev/null")).unwrap();
        file.write_all(b"gone").unwrap();
        file.keep().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let mut full = WholeFile::create(Path::new("/dev/full")).unwrap();
        let error = full.write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_name_that_cannot_be_is_an_error() {
        let folder = Folder::new("wrong");
        assert!(WholeFile::create(&folder.0).is_err());
        assert!(WholeFile::create(&folder.0.join("no/such/folder")).is_err());
    }
}
