//! Files that appear under their name only when they are whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};

/// A file that is written without a name, and gets its own by [`keep`](Self::keep). Dropped before, it leaves nothing, and what
/// stood under its name still does; nor does a process leave anything that is killed.
///
/// On a file system without nameless files it has a temporary name meanwhile, which a process that is killed leaves. A name that
/// belongs to a device or a pipe is written to directly, since it cannot be replaced.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    path: PathBuf,
    place: Place,
    /// Written so far.
    bytes: u64,
}

/// Where a file is before it is kept.
#[derive(Debug)]
enum Place {
    /// Under its own name: a device or a pipe.
    Itself,
    /// In its folder, without a name.
    Nameless,
    /// In its folder, under this name.
    Temporary(PathBuf),
}

/// Makes a file that is named by `make` and hidden beside `path`, under a name that no other has.
fn hidden<T>(
    path: &Path,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{number}.part", std::process::id()));
        let hidden = path.with_file_name(hidden);
        match make(&hidden) {
            Ok(made) => return Ok((hidden, made)),
            // Left by a process that was killed, and had this number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// The name by which a nameless file can be linked.
fn link_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A file without a name in the folder of `path`, where the system has such files.
fn nameless(path: &Path) -> Option<File> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::from(0o666)).ok()?);
    Path::new(&link_of(&file)).exists().then_some(file)
}

impl WholeFile {
    /// Begins the file `path`.
    ///
    /// # Errors
    /// The folder does not exist or does not let a file be made; `path` is a folder.
    pub fn create(path: &Path) -> io::Result<Self> {
        // A link keeps its place: what it leads to is replaced.
        let real = fs::canonicalize(path).ok();
        let path = real.as_deref().unwrap_or(path);
        match fs::metadata(path) {
            Ok(is) if is.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(is) if !is.is_file() => {
                let open = |read| OpenOptions::new().read(read).write(true).open(path);
                return Ok(Self {
                    file: open(true).or_else(|_| open(false))?,
                    path: path.to_owned(),
                    place: Place::Itself,
                    bytes: 0,
                });
            }
            _ => {}
        }
        path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let (file, place) = match nameless(path) {
            Some(file) => (file, Place::Nameless),
            None => Self::temporary(path)?,
        };
        Ok(Self {
            file,
            path: path.to_owned(),
            place,
            bytes: 0,
        })
    }

    fn temporary(path: &Path) -> io::Result<(File, Place)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let (name, file) = hidden(path, |name| options.open(name))?;
        Ok((file, Place::Temporary(name)))
    }

    /// Gives the file its name, and tells how many bytes it has. It replaces the file that had the name.
    ///
    /// # Errors
    /// The system still had bytes to write, and could not; or it does not allow the name. Nothing is left then.
    pub fn keep(mut self) -> io::Result<u64> {
        self.file.flush()?;
        if matches!(self.place, Place::Itself) {
            return Ok(self.bytes);
        }
        // A file system that writes late tells of a full disk here at the latest.
        self.file.sync_data()?;
        if matches!(self.place, Place::Nameless) {
            // A link cannot replace a file, so it is hidden at first.
            let link = link_of(&self.file);
            let (name, ()) = hidden(&self.path, |name| {
                Ok(linkat(CWD, &link, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
            })?;
            self.place = Place::Temporary(name);
        }
        if let Place::Temporary(name) = &self.place {
            fs::rename(name, &self.path)?;
            self.place = Place::Itself;
        }
        self.bytes = self.file.metadata()?.len();
        Ok(self.bytes)
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Place::Temporary(name) = &self.place {
            let _ = fs::remove_file(name);
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

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mapwire-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect()
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
            let (file, place) = WholeFile::temporary(&path).unwrap();
            let path = path.clone();
            WholeFile {
                file,
                path,
                place,
                bytes: 0,
            }
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
        if nameless(&folder.0.join("x")).is_some() {
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
