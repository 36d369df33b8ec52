//! Where a file is to be. Whoever may write to a folder on the way could put a link there, to a file that only the caller may
//! write; so links of other users are not followed, and from then on nothing depends on paths.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The kernel's own bound on links in one path.
const MAX_LINKS: usize = 40;
/// The file system whose links may lead to files without a path, as `/dev/stdout` does.
const PROC_MAGIC: u64 = 0x9fa0;

/// A folder, opened, and a name in it: of a regular file, or of none yet.
#[derive(Debug)]
pub struct Destination {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
    /// A device or a pipe, which cannot be replaced.
    pub(super) special: Option<File>,
}

impl Destination {
    /// Finds the folder of `path` and the name of the file there. Links are followed if they belong to this user or to root.
    ///
    /// # Errors
    /// A folder is missing or cannot be entered, `path` is a folder, or a link belongs to another user; that link is named.
    pub fn find(path: &Path) -> io::Result<Self> {
        let mut walk = Walk { folder: open(CWD, Path::new("."), OFlags::DIRECTORY)?, rest: Vec::new(), links: 0 };
        walk.begin(path)?;
        loop {
            let Some(name) = walk.rest.pop() else {
                return Err(io::ErrorKind::IsADirectory.into());
            };
            if let Some(found) = walk.enter(name)? {
                return Ok(found);
            }
        }
    }

    /// The same place once more.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            folder: self.folder.try_clone()?,
            name: self.name.clone(),
            special: self.special.as_ref().map(File::try_clone).transpose()?,
        })
    }

    /// The path of the file, without links.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path_of(&self.folder).join(&self.name)
    }

    /// Makes a folder for this user alone beside the file, under the hidden name of the file and `suffix`; gives it and its path.
    ///
    /// # Errors
    /// The system does not let it be made, or it is there.
    pub fn private_folder(&self, suffix: &str) -> io::Result<(OwnedFd, PathBuf)> {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(suffix);
        rustix::fs::mkdirat(&self.folder, &name, Mode::RWXU)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&self.folder, &name, flags, Mode::empty())?;
        Ok((made, path_of(&self.folder).join(&name)))
    }
}

struct Walk {
    folder: OwnedFd,
    /// The rest of the path, last component first.
    rest: Vec<OsString>,
    links: usize,
}

impl Walk {
    fn begin(&mut self, path: &Path) -> io::Result<()> {
        if path.is_absolute() {
            self.folder = open(CWD, Path::new("/"), OFlags::DIRECTORY)?;
        }
        let names = path.components().rev().filter_map(|part| match part {
            std::path::Component::Normal(name) => Some(name.to_owned()),
            std::path::Component::ParentDir => Some("..".into()),
            _ => None,
        });
        self.rest.extend(names);
        Ok(())
    }

    fn enter(&mut self, name: OsString) -> io::Result<Option<Destination>> {
        let is_last = self.rest.is_empty();
        let entry = match open(&self.folder, Path::new(&name), OFlags::empty()) {
            Err(Errno::NOENT) if is_last => return self.end(name, None).map(Some),
            entry => entry?,
        };
        let stat = rustix::fs::fstat(&entry)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.folder = entry,
            FileType::Symlink => return self.follow(name, &entry, &stat),
            _ if !is_last => return Err(io::ErrorKind::NotADirectory.into()),
            FileType::RegularFile => return self.end(name, None).map(Some),
            _ => {
                let special = open_special(&self.folder, &name, OFlags::NOFOLLOW)?;
                return self.end(name, Some(special)).map(Some);
            }
        }
        Ok(None)
    }

    fn follow(&mut self, name: OsString, link: &OwnedFd, stat: &Stat) -> io::Result<Option<Destination>> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            let why = format!(
                "{} is a link of user {}, who may let it lead anywhere; name the file that it leads to",
                path_of(&self.folder).join(&name).display(),
                stat.st_uid
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes();
        let target = PathBuf::from(OsString::from_vec(target));
        if rustix::fs::fstatfs(&self.folder)?.f_type as u64 == PROC_MAGIC {
            let through = rustix::fs::statat(&self.folder, &name, AtFlags::empty())?;
            let kind = FileType::from_raw_mode(through.st_mode);
            if !matches!(kind, FileType::RegularFile | FileType::Directory) {
                let special = open_special(&self.folder, &name, OFlags::empty())?;
                return self.end(name, Some(special)).map(Some);
            }
            // A file that was removed has no path any more.
            let by_path = rustix::fs::statat(&self.folder, &target, AtFlags::empty())?;
            if (by_path.st_dev, by_path.st_ino) != (through.st_dev, through.st_ino) {
                return Err(io::ErrorKind::NotFound.into());
            }
        }
        self.begin(&target)?;
        Ok(None)
    }

    fn end(&mut self, name: OsString, special: Option<File>) -> io::Result<Destination> {
        Ok(Destination { folder: self.folder.try_clone()?, name, special })
    }
}

fn open(folder: impl std::os::fd::AsFd, name: &Path, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

fn open_special(folder: &OwnedFd, name: &OsStr, more: OFlags) -> io::Result<File> {
    let open = |rights| rustix::fs::openat(folder, name, rights | OFlags::CLOEXEC | more, Mode::empty());
    Ok(open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY))?.into())
}

fn path_of(folder: &OwnedFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("mapwire-to-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::canonicalize(path).unwrap()
    }

    /// Gives a link to another user; false if this process may not.
    fn give_away(link: &Path) -> bool {
        let other = rustix::fs::Uid::from_raw(54_321);
        rustix::fs::chownat(CWD, link, Some(other), None, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    #[test]
    fn a_path_through_own_links_and_parents_is_found_as_the_system_finds_it() {
        let place = folder("own");
        fs::create_dir_all(place.join("deep/er")).unwrap();
        symlink("deep/er", place.join("in")).unwrap();
        symlink(place.join("deep/old"), place.join("deep/er/out")).unwrap();
        for (path, expected) in [
            ("new", "new"),
            ("in/new", "deep/er/new"),
            ("in/../new", "deep/new"),
            ("in/out", "deep/old"),
            ("./deep//er/./x", "deep/er/x"),
        ] {
            let found = Destination::find(&place.join(path)).unwrap();
            assert_eq!(found.path(), place.join(expected), "{path}");
        }
        symlink("loop", place.join("loop")).unwrap();
        for path in ["loop", "in", "in/..", "no/new", "in/out/x"] {
            assert!(Destination::find(&place.join(path)).is_err(), "{path}");
        }
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_link_of_another_user_is_refused_and_named_wherever_it_is_on_the_way() {
        let place = folder("foreign");
        fs::create_dir_all(place.join("real")).unwrap();
        symlink(place.join("real/target"), place.join("file")).unwrap();
        symlink("real", place.join("folder")).unwrap();
        symlink("file", place.join("mine")).unwrap();
        if give_away(&place.join("file")) && give_away(&place.join("folder")) {
            for (path, link) in [("file", "file"), ("mine", "file"), ("folder/x", "folder")] {
                let error = Destination::find(&place.join(path)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                let named = format!("{} is a link of user 54321", place.join(link).display());
                assert!(error.to_string().contains(&named), "{error}");
            }
        } else {
            mapwire_testing::skip!("only root can make links of other users");
        }
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_private_folder_is_new_and_for_this_user_alone() {
        let place = folder("private");
        let target = Destination::find(&place.join("t")).unwrap();
        let (made, path) = target.private_folder(".1.ranks").unwrap();
        assert_eq!(path, place.join(".t.1.ranks"));
        assert_eq!(rustix::fs::fstat(&made).unwrap().st_mode & 0o777, 0o700);
        assert!(target.private_folder(".1.ranks").is_err());
        symlink("/", place.join(".t.2.ranks")).unwrap();
        assert!(target.private_folder(".2.ranks").is_err());
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn standard_output_is_found_whatever_it_is() {
        assert!(Destination::find(Path::new("/dev/null")).unwrap().special.is_some());
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let link = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let found = Destination::find(Path::new(&link)).unwrap();
        io::Write::write_all(&mut found.special.unwrap(), b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&reader, &mut byte), Ok(1));
    }
}
