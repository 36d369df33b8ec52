//! A folder that no other user can modify, for files that ranks write in a job.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// An open folder of this kind: what later replaces its path makes no difference.
#[derive(Debug)]
pub struct PrivateFolder(OwnedFd);

impl PrivateFolder {
    /// Opens a folder that belongs to this user.
    ///
    /// # Errors
    /// It does not exist, is a link, belongs to another user, or others may write to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&folder)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "its folder belongs to another user, or others can write to it",
            ));
        }
        Ok(Self(folder))
    }

    /// Makes a file for this user alone, under the name at the end of `path`.
    ///
    /// # Errors
    /// The name exists, or the system refuses.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        self.file(path, OFlags::EXCL)
    }

    /// Opens a file for appending, under the name at the end of `path`; makes it if it does not exist.
    ///
    /// # Errors
    /// It is a link, or the system refuses.
    pub fn append(&self, path: &Path) -> io::Result<File> {
        self.file(path, OFlags::APPEND | OFlags::NOFOLLOW)
    }

    fn file(&self, path: &Path, more: OFlags) -> io::Result<File> {
        let name = path.file_name().unwrap_or_default();
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | more;
        Ok(rustix::fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }
}
