//! The descriptor that a launcher leaves open for its ranks.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{SocketType, sockopt};

use crate::LaunchError;

/// A copy of the inherited socket with number `fd`. The copy stays in this process; the original is left as it is.
pub(crate) fn socket(fd: i32) -> Result<OwnedFd, LaunchError> {
    let bad = |why: String| LaunchError::Descriptor { fd, why };
    if fd < 0 {
        return Err(bad("negative".into()));
    }
    // SAFETY: it is borrowed for the call only, and the number is not -1. The call fails if it names nothing; if it names
    // something else by now, a copy harms nobody, and what is not a socket is refused below.
    let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
    let socket = fcntl_dupfd_cloexec(inherited, 3).map_err(|errno| bad(errno.to_string()))?;
    match sockopt::socket_type(&socket) {
        Ok(SocketType::STREAM) => Ok(socket),
        Ok(_) => Err(bad("not a stream".into())),
        Err(errno) => Err(bad(errno.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_no_open_socket_is_refused_by_its_number() {
        let file = std::fs::File::open("/dev/null").unwrap();
        for fd in [-1, 1_000_000, file.as_raw_fd()] {
            let error = socket(fd).unwrap_err().to_string();
            assert!(error.contains(&format!("PMI_FD={fd}")), "{error}");
        }
    }

    #[test]
    fn a_socket_is_copied_and_the_original_stays_open() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(socket(ours.as_raw_fd()).unwrap());
        assert!(socket(ours.as_raw_fd()).is_ok());
        drop(theirs);
    }
}
