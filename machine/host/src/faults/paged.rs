//! Recognises memory whose missing pages a userfaultfd serves: far memory, of any copy of this library, or others' memory. Its missing
//! pages are not zeros.

use std::os::fd::OwnedFd;

use rustix::io::Errno as Os;

use super::uffd_abi::{FEATURE_MINOR_SHMEM, agree, open_userfaultfd, resume};
use crate::page::PAGE_BYTES;

#[derive(Debug)]
pub(crate) enum Paged {
    /// Asks the kernel, by a userfaultfd that has no memory itself.
    Asks(OwnedFd),
    /// Cannot ask: if true, any anonymous memory may be such memory; if false, none is.
    Any(bool),
}

impl Paged {
    /// Finds out whether the process has such memory at all, if the kernel gives no userfaultfd, or one that cannot tell (before Linux
    /// 5.14).
    pub(crate) fn new() -> Self {
        let opened = open_userfaultfd().ok();
        let able = opened.filter(|uffd| agree(uffd, FEATURE_MINOR_SHMEM).is_ok());
        able.map_or_else(|| Self::Any(has_userfaultfd()), Self::Asks)
    }

    /// Whether the anonymous memory at `address` is such memory.
    pub(crate) fn has(&self, address: usize) -> bool {
        match self {
            // The kernel never continues a fault on anonymous memory. Its error is a special one only if some userfaultfd has the memory.
            Self::Asks(uffd) => {
                let page = address & !(PAGE_BYTES - 1);
                resume(uffd, page, PAGE_BYTES, false).1 != Err(Os::NOENT)
            }
            Self::Any(any) => *any,
        }
    }
}

/// Whether this process has a userfaultfd, or that is unknown.
fn has_userfaultfd() -> bool {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else {
        return true;
    };
    let targets = descriptors.flatten().flat_map(|it| std::fs::read_link(it.path()));
    targets.into_iter().any(|target| target.as_os_str() == "anon_inode:[userfaultfd]")
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::faults::uffd_abi::{REGISTER_MODE_MISSING, register};
    use crate::mapping::Mapping;

    #[test]
    fn memory_of_any_userfaultfd_is_told_from_other_memory() {
        let memory = Mapping::anonymous(4 * PAGE_BYTES).unwrap();
        let page = |number: usize| memory.address() + number * PAGE_BYTES;
        let paged = Paged::new();
        assert!(matches!(paged, Paged::Asks(_)));
        assert!((0..4).all(|number| !paged.has(page(number))));
        let other = open_userfaultfd().unwrap();
        agree(&other, 0).unwrap();
        register(&other, page(1), 2 * PAGE_BYTES, REGISTER_MODE_MISSING).unwrap();
        assert_eq!([0, 1, 2, 3].map(|number| paged.has(page(number) + 9)), [false, true, true, false]);
        assert!(has_userfaultfd() && Paged::Any(has_userfaultfd()).has(page(0)));
    }
}
