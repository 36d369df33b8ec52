use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};

use super::*;
use crate::mapping::{Mapping, Rights};
use crate::page::PAGE_BYTES;
use crate::testing::{close, count_of, in_child, is_dumped, load_word, lower_limit, store_word};

/// Shares a buffer and maps it, as a peer would.
fn imported(buffer: &mut SharedBuffer, bytes: usize, writable: bool) -> Result<MappedBuffer, MemoryError> {
    let writers = if writable { Writers::All } else { Writers::Present };
    buffer.share(writers)?;
    let (memory, status) = buffer.descriptors().expect("it is shared");
    MappedBuffer::map(memory, status, 0..bytes, writable)
}

#[test]
fn what_the_exporter_stores_the_importer_loads_and_the_other_way_round() {
    let mut buffer = SharedBuffer::allocate("both-ways", 5000).unwrap();
    assert_eq!(buffer.len(), 5000);
    assert_eq!(buffer.as_ptr().addr() % PAGE_BYTES, 0);
    let import = imported(&mut buffer, 5000, true).unwrap();
    buffer.write(4990, b"0123456789").unwrap();
    let mut bytes = [0; 10];
    import.read(4990, &mut bytes).unwrap();
    assert_eq!(&bytes, b"0123456789");
    assert!(store_word(&import, 8, 77));
    assert_eq!(load_word(&buffer, 8), 77);
    assert!(!import.revoked());
}

#[test]
fn nothing_reaches_past_the_bytes_asked_for() {
    let mut buffer = SharedBuffer::allocate("edges", 5000).unwrap();
    let import = imported(&mut buffer, 5000, true).unwrap();
    let error = buffer.write(4999, b"ab").unwrap_err();
    assert_eq!(error, MemoryError::OutOfRange { offset: 4999, bytes: 2, len: 5000 });
    assert!(import.write(usize::MAX, &b"ab"[..]).is_err());
    assert!(import.read(5001, &mut []).is_err());
    assert!(import.read(5000, &mut []).is_ok());
    assert!(!store_word(&import, 4996, 1));
    assert!(!store_word(&import, 12, 1));
}

#[test]
fn an_importer_of_loads_only_cannot_store() {
    let mut buffer = SharedBuffer::allocate("loads", 100).unwrap();
    let import = imported(&mut buffer, 100, false).unwrap();
    buffer.write(0, b"x").unwrap();
    let mut byte = [0];
    import.read(0, &mut byte).unwrap();
    assert_eq!(&byte, b"x");
    assert_eq!(import.write(0, &b"y"[..]), Err(MemoryError::ReadOnly));
    assert!(!store_word(&import, 0, 1));
}

/// Opens the file behind a descriptor once more, for loads and stores.
fn reopened(fd: BorrowedFd<'_>) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Asserts that no holder of a descriptor can store there.
fn nobody_can_store(fd: BorrowedFd<'_>) {
    for fd in [fd.try_clone_to_owned().unwrap(), reopened(fd)] {
        assert!(Mapping::shared(&fd, 0, PAGE_BYTES, Rights::ReadWrite).is_err());
        let read_only = Mapping::shared(&fd, 0, PAGE_BYTES, Rights::Read).unwrap();
        assert!(read_only.protect(0, PAGE_BYTES, Rights::ReadWrite).is_err());
        assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&fd, punch, 0, PAGE_BYTES as u64).is_err());
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE).is_err());
    }
}

#[test]
fn what_is_shared_for_loads_only_is_written_by_its_exporter_alone_also_after_a_revocation() {
    let mut buffer = SharedBuffer::allocate("writers", 100).unwrap();
    for round in [b"1st", b"2nd"] {
        buffer.share(Writers::Present).unwrap();
        let (memory, status) = buffer.descriptors().unwrap();
        nobody_can_store(memory);
        assert!(MappedBuffer::map(memory, status, 0..100, true).is_err());
        let import = MappedBuffer::map(memory, status, 0..100, false).unwrap();
        buffer.write(0, round).unwrap();
        let mut bytes = [0; 3];
        import.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, round);
        buffer.revoke().unwrap();
    }
}

#[test]
fn an_importer_can_neither_write_the_status_nor_seal_the_memory_against_others() {
    let mut buffer = SharedBuffer::allocate("status", 100).unwrap();
    buffer.share(Writers::All).unwrap();
    let (memory, status) = buffer.descriptors().unwrap();
    nobody_can_store(status);
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
        assert!(rustix::fs::fcntl_add_seals(memory, seal).is_err());
        assert!(rustix::fs::fcntl_add_seals(reopened(memory), seal).is_err());
    }
    let import = MappedBuffer::map(memory, status, 0..100, true).unwrap();
    assert!(!import.revoked());
    buffer.revoke().unwrap();
    assert!(import.revoked(), "the exporter itself still writes it");
}

#[test]
fn a_buffer_that_is_shared_otherwise_than_before_moves() {
    let mut buffer = SharedBuffer::allocate("otherwise", 100).unwrap();
    buffer.write(0, b"kept").unwrap();
    let reader = imported(&mut buffer, 100, false).unwrap();
    let writer = imported(&mut buffer, 100, true).unwrap();
    assert!(reader.revoked());
    writer.write(4, &b"!"[..]).unwrap();
    let next = imported(&mut buffer, 100, false).unwrap();
    assert!(writer.revoked());
    let mut bytes = [0; 5];
    next.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept!");
}

#[test]
fn mappings_of_others_memory_are_left_out_of_core_dumps() {
    let mut buffer = SharedBuffer::allocate("undumped", 100).unwrap();
    let import = imported(&mut buffer, 100, true).unwrap();
    assert!(!is_dumped(import.at(0, 1).unwrap().addr()));
    assert!(is_dumped(buffer.as_ptr().addr()));
}

#[test]
fn revocation_leaves_the_importer_an_orphan_and_the_exporter_its_contents() {
    let bytes = 40 * PAGE_BYTES + 17;
    let mut buffer = SharedBuffer::allocate("orphan", bytes).unwrap();
    let import = imported(&mut buffer, bytes, true).unwrap();
    let pattern: Vec<u8> = (0..bytes).map(|i| (i / 7) as u8).collect();
    import.write(0, &pattern[..]).unwrap();
    let address = buffer.as_ptr();
    buffer.revoke().unwrap();
    assert_eq!(buffer.as_ptr(), address);
    assert!(import.revoked());
    let mut after = vec![0; bytes];
    buffer.read(0, &mut after).unwrap();
    assert!(after == pattern);
    // Stores of the importer harm nobody, and stores of the exporter are no longer seen.
    import.write(0, &b"orphan"[..]).unwrap();
    buffer.write(8, b"fresh").unwrap();
    buffer.read(0, &mut after).unwrap();
    assert_eq!(after[..8], pattern[..8]);
    let mut seen = [0; 5];
    import.read(8, &mut seen).unwrap();
    assert_eq!(seen, pattern[8..13]);
    // A new importer gets the fresh memory.
    let next = imported(&mut buffer, bytes, false).unwrap();
    next.read(8, &mut seen).unwrap();
    assert_eq!(&seen, b"fresh");
    assert!(!next.revoked());
    drop(buffer);
    assert!(next.revoked());
}

#[test]
fn revoking_a_sparse_buffer_copies_only_what_was_touched() {
    let bytes = 1 << 36;
    let mut buffer = SharedBuffer::allocate("sparse", bytes).unwrap();
    buffer.write(bytes / 2, b"middle").unwrap();
    buffer.write(bytes - 3, b"end").unwrap();
    buffer.share(Writers::All).unwrap();
    let inode = |buffer: &SharedBuffer| rustix::fs::fstat(buffer.fd()).unwrap().st_ino;
    let before = inode(&buffer);
    buffer.revoke().unwrap();
    assert_eq!(inode(&buffer), before, "nobody had it");
    assert!(buffer.descriptors().is_some());
    buffer.revoke().unwrap();
    assert_ne!(inode(&buffer), before);
    let mut middle = [0; 6];
    buffer.read(bytes / 2, &mut middle).unwrap();
    let mut end = [0; 3];
    buffer.read(bytes - 3, &mut end).unwrap();
    assert_eq!((&middle, &end), (b"middle", b"end"));
    let blocks = rustix::fs::fstat(buffer.fd()).unwrap().st_blocks;
    assert!(blocks < 1 << 16, "{blocks} blocks of 512 bytes");
}

#[test]
fn an_importer_refuses_memory_that_is_short_or_can_become_so() {
    let mut buffer = SharedBuffer::allocate("short", 100).unwrap();
    let error = imported(&mut buffer, PAGE_BYTES + 1, true).unwrap_err();
    assert_eq!(error, MemoryError::TooShort { found_bytes: 4096, needed_bytes: 8192 });

    buffer.share(Writers::All).unwrap();
    let (_, status) = buffer.descriptors().unwrap();
    let status = status.try_clone_to_owned().unwrap();
    let refused = |memory: BorrowedFd<'_>, status: BorrowedFd<'_>| {
        let error = MappedBuffer::map(memory, status, 0..100, false).unwrap_err();
        assert!(matches!(error, MemoryError::NotSealed(_)), "{error}");
    };
    let unsealed = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, 1 << 20).unwrap();
    refused(unsealed.as_fd(), status.as_fd());
    refused(buffer.fd(), unsealed.as_fd());
    for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        refused(unsealed.as_fd(), status.as_fd());
        rustix::fs::fcntl_add_seals(&unsealed, seal).unwrap();
    }
    MappedBuffer::map(&unsealed, &status, 0..100, true).unwrap();

    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    refused(file.as_fd(), status.as_fd());
    let device = std::fs::File::open("/dev/zero").unwrap();
    refused(device.as_fd(), status.as_fd());
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    refused(pipe.as_fd(), status.as_fd());
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    refused(socket.as_fd(), status.as_fd());
    let (nothing, no_mode) = (OFlags::CLOEXEC, Mode::empty());
    // Some of these are on the same file system as a memfd; the last only names one.
    let memfd = format!("/proc/self/fd/{}", buffer.fd().as_raw_fd());
    for (path, flags) in [
        ("/", OFlags::DIRECTORY),
        ("/dev/shm", OFlags::DIRECTORY),
        ("/proc/self/maps", nothing),
        (&*memfd, OFlags::PATH),
    ] {
        match rustix::fs::open(path, flags | nothing, no_mode) {
            Ok(file) => refused(file.as_fd(), status.as_fd()),
            Err(error) => mapwire_testing::skip!("{path}: {error}"),
        }
    }

    // The seal holds: the exporter cannot take the memory away, only empty it.
    assert!(rustix::fs::ftruncate(buffer.fd(), 0).is_err());
    let import = imported(&mut buffer, 100, true).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(buffer.fd(), punch, 0, 8192).unwrap();
    let mut byte = [1];
    import.read(0, &mut byte).unwrap();
    assert_eq!(byte, [0]);
}

#[test]
fn memory_of_huge_pages_is_refused_since_they_can_run_out_on_a_load() {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let huge = rustix::fs::memfd_create("huge", flags).unwrap();
    rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    rustix::fs::fcntl_add_seals(&huge, SealFlags::SEAL).unwrap();
    let mut buffer = SharedBuffer::allocate("base", 100).unwrap();
    buffer.share(Writers::All).unwrap();
    let (memory, status) = buffer.descriptors().unwrap();
    for (memory, status) in [(huge.as_fd(), status), (memory, huge.as_fd())] {
        assert_eq!(
            MappedBuffer::map(memory, status, 0..100, false).unwrap_err(),
            MemoryError::NotSealed("no memfd of base pages")
        );
    }
}

#[test]
fn what_a_program_prints_without_standard_streams_lands_in_no_memory() {
    in_child("closed", || {
        let own = std::fs::read_dir("/proc/self/fd").unwrap().count();
        assert!(own >= 3);
        for stream in 0..3 {
            close(stream);
        }
        let mut buffer = SharedBuffer::allocate("closed", 100).unwrap();
        buffer.share(Writers::All).unwrap();
        let (memory, status) = buffer.descriptors().unwrap();
        let fds = [memory.as_raw_fd(), status.as_raw_fd()];
        let uffd = crate::faults::open_userfaultfd().map(|fd| fd.as_raw_fd());
        let stdout_is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        let right = fds.iter().all(|&fd| fd > 2) && uffd.is_ok_and(|fd| fd > 2);
        std::process::exit(i32::from(!(right && stdout_is_closed)));
    });
}

#[test]
fn no_bytes_and_too_many_bytes_are_errors() {
    assert_eq!(SharedBuffer::allocate("none", 0).unwrap_err(), MemoryError::Zero);
    for bytes in [usize::MAX, usize::MAX - PAGE_BYTES, isize::MAX as usize] {
        let error = SharedBuffer::allocate("huge", bytes).unwrap_err();
        assert_eq!(error, MemoryError::TooLong { bytes });
    }
    // A file may have that length, an address space not.
    let error = SharedBuffer::allocate("huge", 1 << 50).unwrap_err();
    assert!(matches!(error, MemoryError::Limit { name: "RLIMIT_AS", .. }), "{error}");
    let mut buffer = SharedBuffer::allocate("none", 1).unwrap();
    assert_eq!(imported(&mut buffer, 0, true).unwrap_err(), MemoryError::Zero);
}

#[test]
fn a_small_limit_of_address_space_is_named_and_what_fits_still_works() {
    in_child("limit", || {
        lower_limit(rustix::process::Resource::As, 4 << 30);
        let error = SharedBuffer::allocate("limit", 8 << 30).unwrap_err();
        let text = error.to_string();
        for word in ["8589934592 bytes", "RLIMIT_AS is 4294967296", "ulimit -v"] {
            assert!(text.contains(word), "{text}");
        }
        SharedBuffer::allocate("limit", 1 << 20).unwrap();
    });
}

#[test]
fn without_descriptors_the_limit_is_named() {
    in_child("descriptors", || {
        lower_limit(rustix::process::Resource::Nofile, 3);
        let error = SharedBuffer::allocate("limit", 1 << 20).unwrap_err();
        assert!(error.to_string().contains("RLIMIT_NOFILE is 3"), "{error}");
    });
}

#[test]
fn nothing_is_left_when_buffers_are_dropped() {
    for _ in 0..3 {
        let mut buffer = SharedBuffer::allocate("leakcheck/ with\nodd\0name", 10_000).unwrap();
        let import = imported(&mut buffer, 10_000, true).unwrap();
        assert_eq!(count_of("leakcheck"), (4, 2));
        buffer.revoke().unwrap();
        assert_eq!(count_of("leakcheck"), (3, 1));
        drop(buffer);
        drop(import);
        assert_eq!(count_of("leakcheck"), (0, 0));
    }
}

#[test]
fn mapped_memory_is_told_from_unmapped() {
    let mut buffer = SharedBuffer::allocate("mapped", 3 << 20).unwrap();
    let start = buffer.as_ptr().addr();
    assert!(memory_is_mapped(start, 3 << 20));
    assert!(memory_is_mapped(start + 5, 0));
    assert!(!memory_is_mapped(16, 1));
    assert!(!memory_is_mapped(start, usize::MAX - start));
    assert!(!memory_is_mapped(usize::MAX - 1, 5));
    assert_eq!(check_memory(start, 3 << 20, true), Ok(()));
    let import = imported(&mut buffer, 100, false).unwrap();
    assert!(check_memory(import.at(0, 1).unwrap().addr(), 100, true).is_err());
}

#[test]
fn a_word_stored_last_is_seen_with_what_was_stored_before_it() {
    let mut buffer = SharedBuffer::allocate("order", 4096).unwrap();
    let import = imported(&mut buffer, 4096, true).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..2000u64 {
                import.write(64, &round.to_le_bytes()[..]).unwrap();
                assert!(store_word(&import, 0, round));
                while load_word(&buffer, 8) != round {
                    std::thread::yield_now();
                }
            }
        });
        for round in 1..2000u64 {
            while load_word(&buffer, 0) != round {
                std::thread::yield_now();
            }
            let mut bytes = [0; 8];
            buffer.read(64, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), round);
            assert!(store_word(&import, 8, round));
        }
    });
}

#[test]
#[allow(unsafe_code)]
fn a_forked_child_that_drops_its_copy_revokes_nothing() {
    in_child("fork", || {
        let mut buffer = SharedBuffer::allocate("fork", 100).unwrap();
        let import = imported(&mut buffer, 100, false).unwrap();
        // SAFETY: this process has no other thread that matters; the child only drops and ends.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                drop(buffer);
                libc::_exit(0);
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        assert!(!import.revoked());
        drop(buffer);
        assert!(import.revoked());
    });
}
