//! Files that appear under their name only when they are whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file that is written under a temporary name beside its own, and gets its own by [`keep`](Self::keep). Dropped before, it
/// leaves nothing, and what stood under its name still does.
///
/// A name that belongs to a device or a pipe is written to directly, since it cannot be replaced.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    path: PathBuf,
    /// `None` when the name itself is written to.
    temporary: Option<PathBuf>,
    /// Written so far.
    bytes: u64,
}

impl WholeFile {
    /// Begins the file `path`.
    ///
    /// # Errors
    /// The folder does not exist or does not let a file be made; `path` is a folder.
    pub fn create(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(is) if is.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(is) if !is.is_file() => {
                let open = |read| OpenOptions::new().read(read).write(true).open(path);
                return Ok(Self {
                    file: open(true).or_else(|_| open(false))?,
                    path: path.to_owned(),
                    temporary: None,
                    bytes: 0,
                });
            }
            _ => {}
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{number}.part", std::process::id()));
            let temporary = path.with_file_name(hidden);
            let made = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&temporary);
            match made {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        path: path.to_owned(),
                        temporary: Some(temporary),
                        bytes: 0,
                    });
                }
                // Left by a process that was killed, and had this number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives the file its name, and tells how many bytes it has. It replaces the file that had the name.
    ///
    /// # Errors
    /// The system still had bytes to write, and could not; or it does not allow the name. Nothing is left then.
    pub fn keep(mut self) -> io::Result<u64> {
        self.file.flush()?;
        if let Some(temporary) = &self.temporary {
            // A file system that writes late tells of a full disk here at the latest.
            self.file.sync_data()?;
            fs::rename(temporary, &self.path)?;
            self.temporary = None;
            self.bytes = self.file.metadata()?.len();
        }
        Ok(self.bytes)
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
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
    fn a_file_that_is_dropped_leaves_nothing() {
        let folder = Folder::new("dropped");
        let path = folder.0.join("out");
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(folder.names().len(), 1);
        drop(file);
        assert_eq!(folder.names(), Vec::<String>::new());
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
