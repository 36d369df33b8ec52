//! Files that ranks wrote on their hosts, on their way to the head.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mapwire_driver::capture::{counters_of, file_of};
use mapwire_driver::profile;
use mapwire_host::private_folder::PrivateFolder;
use mapwire_transport::net::capture;

use super::frame::{FILE, frame};

const PART: usize = 256 * 1024;

pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(super) fn into_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Notes that the clock of these ranks was so many nanoseconds ahead of the head's, which is read by [`clock_of`].
    pub(super) fn note_clock(&self, ranks: Range<u32>, ahead_ns: i64) -> io::Result<()> {
        let folder = PrivateFolder::open(&self.folder)?;
        for rank in ranks {
            let mut file = folder.create(&clock_file(&self.folder, rank))?;
            file.write_all(ahead_ns.to_string().as_bytes())?;
        }
        Ok(())
    }

    /// Adds a part to a file of one of `ranks`.
    pub(super) fn take(&mut self, ranks: &Range<u32>, body: &[u8]) -> Result<(), String> {
        let (name, bytes) = body
            .split_first()
            .and_then(|(length, rest)| rest.split_at_checked((*length).into()))
            .ok_or("a part without a name")?;
        let name = OsStr::from_bytes(name);
        let path = names(&self.folder, ranks.clone()).find(|path| path.file_name() == Some(name));
        let path = path.ok_or_else(|| format!("{} is not a file of them", name.display()))?;
        let file = PrivateFolder::open(&self.folder).and_then(|folder| folder.append(&path));
        file.and_then(|mut file| file.write_all(bytes)).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn clock_file(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("{rank}.clock"))
}

/// By how many nanoseconds the clock was ahead by which a rank wrote its file; 0 on one host.
pub(crate) fn clock_of(folder: &Path, rank: u32) -> i64 {
    let text = fs::read_to_string(clock_file(folder, rank)).unwrap_or_default();
    text.parse().unwrap_or(0)
}

/// All files that ranks may write for a trace, a capture and a summary.
fn names(folder: &Path, ranks: Range<u32>) -> impl Iterator<Item = PathBuf> {
    let folder = folder.to_owned();
    ranks.flat_map(move |rank| {
        let captured = capture::file_of(&folder, rank);
        [file_of(&folder, rank), counters_of(&folder, rank), captured, profile::file_of(&folder, rank)]
    })
}

/// A folder of this process for the files of its ranks, which goes with it.
pub(super) struct Basket {
    folder: PathBuf,
}

impl Basket {
    pub(super) fn make() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("mapwire-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn send(&self, ranks: Range<u32>, mut send: impl FnMut(Vec<u8>)) -> io::Result<()> {
        for path in names(&self.folder, ranks) {
            // A pipe in its place must not make this wait.
            let mut file = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let name = path.file_name().unwrap_or_default().as_bytes();
            let head = [&[name.len() as u8], name].concat();
            let mut bytes = vec![0; PART];
            loop {
                let count = file.read(&mut bytes)?;
                send(frame(FILE, &[&head, &bytes[..count]].concat()));
                if count == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Basket {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_arrive_whole_and_only_those_of_the_hosts_own_ranks() {
        let (from, to) = (Basket::make().unwrap(), std::env::temp_dir());
        let to = to.join(format!("mapwire-files-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&to).unwrap();
        let bytes: Vec<u8> = (0..2 * PART + 17).map(|at| at as u8).collect();
        fs::write(file_of(from.folder(), 3), &bytes).unwrap();
        fs::write(counters_of(from.folder(), 3), b"").unwrap();
        let mut files = Files::into_folder(to.clone());
        let mut bodies = Vec::new();
        from.send(0..8, |frame| bodies.push(frame[5..].to_vec())).unwrap();
        for body in &bodies {
            assert!(files.take(&(0..3), body).is_err(), "rank 3 is elsewhere");
            files.take(&(2..4), body).unwrap();
        }
        assert_eq!(fs::read(file_of(&to, 3)).unwrap(), bytes);
        assert_eq!(fs::read(counters_of(&to, 3)).unwrap(), b"");
        assert!(files.take(&(0..4), b"\x0d../etc/passwdx").is_err());
        assert!(files.take(&(0..4), b"\xffabc").is_err());
        fs::remove_dir_all(&to).unwrap();
    }
}
