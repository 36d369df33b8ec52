//! The bare system calls and the copy that move private memory onto a memfd at its place, and back.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{io, ptr};

use mapwire_translation::PAGE_BYTES;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::super::BenchError;
use super::super::words::Words;

/// Private memory that is on a memfd now.
pub(crate) struct BareMove {
    pages: Words,
    _file: OwnedFd,
    status: *mut c_void,
    _status_file: OwnedFd,
}

impl BareMove {
    /// Moves whole pages of private memory onto a memfd that others can map, and makes a page that tells them of its state.
    pub(crate) fn out(pages: Words) -> Result<Self, BenchError> {
        let length = SealFlags::SHRINK | SealFlags::GROW;
        let file = memfd(pages.len())?;
        fcntl_add_seals(&file, length)?;
        let mut done = 0;
        while done < pages.len() {
            // SAFETY: the range is mapped, by the contract of `Words`; the kernel reads it.
            let written = unsafe {
                libc::pwrite64(
                    file.as_raw_fd(),
                    pages.as_ptr().wrapping_add(done).cast(),
                    pages.len() - done,
                    done as libc::off64_t,
                )
            };
            done += checked(written as isize)?;
        }
        map(pages.as_ptr().cast(), pages.len(), libc::MAP_FIXED, Some(&file))?;
        fcntl_add_seals(&file, SealFlags::SEAL)?;
        let status_file = memfd(PAGE_BYTES)?;
        fcntl_add_seals(&status_file, length)?;
        let status = map(ptr::null_mut(), PAGE_BYTES, 0, Some(&status_file))?;
        fcntl_add_seals(&status_file, SealFlags::SEAL | SealFlags::FUTURE_WRITE)?;
        Ok(Self { pages, _file: file, status, _status_file: status_file })
    }

    /// Moves them back.
    pub(crate) fn back(self) -> Result<(), BenchError> {
        let bytes = self.pages.len();
        let fresh = map(ptr::null_mut(), bytes, 0, None)?;
        // SAFETY: the fresh mapping is this function's own. Making its pages present changes no byte.
        unsafe { libc::madvise(fresh, bytes, libc::MADV_POPULATE_WRITE) };
        Words::new(fresh.cast(), bytes).copy_from(0, self.pages);
        let to = self.pages.as_ptr().cast::<c_void>();
        // SAFETY: the fresh mapping holds the bytes of the memory whose place it takes, which is the bench's own.
        let moved = unsafe { libc::mremap(fresh, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to) };
        if moved != to {
            return Err(io::Error::last_os_error().into());
        }
        Ok(())
    }
}

impl Drop for BareMove {
    fn drop(&mut self) {
        // SAFETY: `out` mapped it, and nobody has its address but this value.
        unsafe { libc::munmap(self.status, PAGE_BYTES) };
    }
}

fn memfd(bytes: usize) -> Result<OwnedFd, BenchError> {
    let file = memfd_create("mapwire-bench", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Maps a file, shared, or fresh private memory. With `MAP_FIXED` `place` is the bench's own, and the file holds its bytes.
fn map(place: *mut c_void, bytes: usize, flags: i32, file: Option<&OwnedFd>) -> Result<*mut c_void, BenchError> {
    let (kind, file) = match file {
        Some(file) => (libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel picks unused address space, or the place's bytes stay as they are, as this function's callers see to.
    let start = unsafe { libc::mmap(place, bytes, rights, kind | flags, file, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().into());
    }
    Ok(start)
}

fn checked(outcome: isize) -> Result<usize, io::Error> {
    usize::try_from(outcome).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_moves_onto_a_memfd_and_back_keeps_its_bytes() {
        let mut memory = vec![0_u8; 4 * PAGE_BYTES];
        let all = Words::new(memory.as_mut_ptr(), memory.len());
        let pages = all.part(all.before_page(), 2 * PAGE_BYTES);
        pages.put(0, &[7; 2 * PAGE_BYTES]);
        let is_shared = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let start = format!("{:x}-", pages.as_ptr().addr());
            let line = maps.lines().find(|line| line.starts_with(&start));
            line.is_some_and(|line| line.contains("rw-s"))
        };
        let moved = BareMove::out(pages).unwrap();
        assert!(is_shared());
        let mut read = [0; 2 * PAGE_BYTES];
        pages.get(0, &mut read);
        assert_eq!(read, [7; 2 * PAGE_BYTES]);
        pages.put(PAGE_BYTES, &[8; 64]);
        moved.back().unwrap();
        assert!(!is_shared());
        pages.get(0, &mut read);
        assert_eq!(read[PAGE_BYTES - 1..PAGE_BYTES + 65], {
            let mut wanted = [8; 66];
            (wanted[0], wanted[65]) = (7, 7);
            wanted
        });
    }
}
