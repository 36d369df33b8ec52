use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use super::*;
use crate::page::PAGE_BYTES;
use crate::testing::{count_of, in_child, lower_limit};

#[test]
fn what_the_exporter_stores_the_importer_loads_and_the_other_way_round() {
    let buffer = SharedBuffer::allocate("both-ways", 5000).unwrap();
    assert_eq!(
        (buffer.len(), buffer.mapped_bytes()),
        (5000, 2 * PAGE_BYTES)
    );
    assert_eq!(buffer.as_ptr().addr() % PAGE_BYTES, 0);
    let import = MappedBuffer::map(buffer.fd(), 5000, true).unwrap();
    buffer.write(4990, b"0123456789").unwrap();
    let mut bytes = [0; 10];
    import.read(4990, &mut bytes).unwrap();
    assert_eq!(&bytes, b"0123456789");
    import.store_release_u64(8, 77).unwrap();
    assert_eq!(buffer.load_acquire_u64(8), Ok(77));
    assert!(!import.revoked());
}

#[test]
fn nothing_reaches_past_the_bytes_asked_for() {
    let buffer = SharedBuffer::allocate("edges", 5000).unwrap();
    let import = MappedBuffer::map(buffer.fd(), 5000, true).unwrap();
    let error = buffer.write(4999, b"ab").unwrap_err();
    assert_eq!(
        error,
        MemoryError::OutOfRange {
            offset: 4999,
            bytes: 2,
            len: 5000
        }
    );
    assert!(import.write(usize::MAX, b"ab").is_err());
    assert!(import.read(5001, &mut []).is_err());
    assert!(import.read(5000, &mut []).is_ok());
    assert!(buffer.store_release_u64(4996, 1).is_err());
    assert_eq!(
        import.store_release_u64(12, 1),
        Err(MemoryError::Misaligned {
            offset: 12,
            align: 8
        })
    );
}

#[test]
fn an_importer_of_loads_only_cannot_store() {
    let buffer = SharedBuffer::allocate("loads", 100).unwrap();
    let read_only = buffer.read_only_fd().unwrap();
    let import = MappedBuffer::map(&read_only, 100, false).unwrap();
    buffer.write(0, b"x").unwrap();
    let mut byte = [0];
    import.read(0, &mut byte).unwrap();
    assert_eq!(&byte, b"x");
    assert_eq!(import.write(0, b"y"), Err(MemoryError::ReadOnly));
    assert_eq!(import.store_release_u64(0, 1), Err(MemoryError::ReadOnly));
    let error = MappedBuffer::map(&read_only, 100, true).unwrap_err();
    assert!(
        matches!(error, MemoryError::System { call: "mmap", .. }),
        "{error}"
    );
}

#[test]
fn no_new_writer_is_let_in_once_forbidden_also_after_a_revocation() {
    let mut buffer = SharedBuffer::allocate("writers", 100).unwrap();
    buffer.forbid_new_writers().unwrap();
    assert!(MappedBuffer::map(buffer.fd(), 100, true).is_err());
    buffer.write(0, b"mine").unwrap();
    buffer.revoke().unwrap();
    assert!(MappedBuffer::map(buffer.fd(), 100, true).is_err());
    buffer.write(0, b"mine").unwrap();
    let import = MappedBuffer::map(buffer.fd(), 100, false).unwrap();
    let mut bytes = [0; 4];
    import.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"mine");
}

#[test]
fn revocation_leaves_the_importer_an_orphan_and_the_exporter_its_contents() {
    let bytes = 40 * PAGE_BYTES + 17;
    let mut buffer = SharedBuffer::allocate("orphan", bytes).unwrap();
    let import = MappedBuffer::map(buffer.fd(), bytes, true).unwrap();
    let pattern: Vec<u8> = (0..bytes).map(|i| (i / 7) as u8).collect();
    import.write(0, &pattern).unwrap();
    let address = buffer.as_ptr();
    buffer.revoke().unwrap();
    assert_eq!(buffer.as_ptr(), address);
    assert!(import.revoked());
    let mut after = vec![0; bytes];
    buffer.read(0, &mut after).unwrap();
    assert!(after == pattern);
    // Stores of the importer harm nobody, and stores of the exporter are no longer seen.
    import.write(0, b"orphan").unwrap();
    buffer.write(8, b"fresh").unwrap();
    buffer.read(0, &mut after).unwrap();
    assert_eq!(after[..8], pattern[..8]);
    let mut seen = [0; 5];
    import.read(8, &mut seen).unwrap();
    assert_eq!(seen, pattern[8..13]);
    // A new importer gets the fresh memory.
    let next = MappedBuffer::map(buffer.fd(), bytes, false).unwrap();
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
    buffer.revoke().unwrap();
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
    let buffer = SharedBuffer::allocate("short", 100).unwrap();
    let error = MappedBuffer::map(buffer.fd(), PAGE_BYTES + 1, true).unwrap_err();
    assert_eq!(
        error,
        MemoryError::TooShort {
            found_bytes: 8192,
            needed_bytes: 12288
        }
    );

    let unsealed = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, 1 << 20).unwrap();
    assert_eq!(
        MappedBuffer::map(&unsealed, 100, true).unwrap_err(),
        MemoryError::NotSealed
    );
    rustix::fs::fcntl_add_seals(&unsealed, SealFlags::SHRINK).unwrap();
    MappedBuffer::map(&unsealed, 100, true).unwrap();

    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(
        MappedBuffer::map(file.as_fd(), 100, false).unwrap_err(),
        MemoryError::NotSealed
    );

    // The seal holds: the exporter cannot take the memory away, only empty it.
    assert!(rustix::fs::ftruncate(buffer.fd(), 0).is_err());
    let import = MappedBuffer::map(buffer.fd(), 100, true).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(buffer.fd(), punch, 0, 8192).unwrap();
    let mut byte = [1];
    import.read(0, &mut byte).unwrap();
    assert_eq!(byte, [0]);
}

#[test]
fn no_bytes_and_too_many_bytes_are_errors() {
    assert_eq!(
        SharedBuffer::allocate("none", 0).unwrap_err(),
        MemoryError::Zero
    );
    for bytes in [usize::MAX, usize::MAX - PAGE_BYTES, isize::MAX as usize] {
        let error = SharedBuffer::allocate("huge", bytes).unwrap_err();
        assert_eq!(error, MemoryError::TooLong { bytes });
    }
    // A file may be as long as that, an address space is not.
    let error = SharedBuffer::allocate("huge", 1 << 50).unwrap_err();
    assert!(matches!(error, MemoryError::AddressSpace { .. }), "{error}");
    let buffer = SharedBuffer::allocate("none", 1).unwrap();
    assert_eq!(
        MappedBuffer::map(buffer.fd(), 0, true).unwrap_err(),
        MemoryError::Zero
    );
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
        let import = MappedBuffer::map(buffer.fd(), 10_000, true).unwrap();
        assert_eq!(count_of("leakcheck"), (3, 1));
        buffer.revoke().unwrap();
        assert_eq!(count_of("leakcheck"), (3, 1));
        drop(buffer);
        drop(import);
        assert_eq!(count_of("leakcheck"), (0, 0));
    }
}

#[test]
fn mapped_memory_is_told_from_unmapped() {
    let buffer = SharedBuffer::allocate("mapped", 3 << 20).unwrap();
    let start = buffer.as_ptr().addr();
    assert!(memory_is_mapped(start, 3 << 20));
    assert!(memory_is_mapped(start + 5, 0));
    assert!(!memory_is_mapped(16, 1));
    assert!(!memory_is_mapped(start, usize::MAX - start));
    assert!(!memory_is_mapped(usize::MAX - 1, 5));
    assert_eq!(check_memory(start, 3 << 20, true), Ok(()));
    let import = MappedBuffer::map(buffer.fd(), 100, false).unwrap();
    assert!(check_memory(import.as_ptr().addr(), 100, true).is_err());
}

#[test]
fn a_word_stored_last_is_seen_with_what_was_stored_before_it() {
    let buffer = SharedBuffer::allocate("order", 4096).unwrap();
    let import = MappedBuffer::map(buffer.fd(), 4096, true).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..2000u64 {
                import.write(64, &round.to_le_bytes()).unwrap();
                import.store_release_u64(0, round).unwrap();
                while buffer.load_acquire_u64(8).unwrap() != round {
                    std::thread::yield_now();
                }
            }
        });
        for round in 1..2000u64 {
            while buffer.load_acquire_u64(0).unwrap() != round {
                std::thread::yield_now();
            }
            let mut bytes = [0; 8];
            buffer.read(64, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), round);
            buffer.store_release_u64(8, round).unwrap();
        }
    });
}

#[test]
#[allow(unsafe_code)]
fn a_forked_child_that_drops_its_copy_revokes_nothing() {
    in_child("fork", || {
        let buffer = SharedBuffer::allocate("fork", 100).unwrap();
        let import = MappedBuffer::map(buffer.fd(), 100, false).unwrap();
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

#[test]
fn a_prefaulted_buffer_has_all_its_memory() {
    let buffer = SharedBuffer::allocate("prefault", 64 * PAGE_BYTES).unwrap();
    assert_eq!(rustix::fs::fstat(buffer.fd()).unwrap().st_blocks, 0);
    buffer.prefault().unwrap();
    assert_eq!(rustix::fs::fstat(buffer.fd()).unwrap().st_blocks, 64 * 8);
    for writable in [false, true] {
        let import = MappedBuffer::map(buffer.fd(), 64 * PAGE_BYTES, writable).unwrap();
        import.prefault().unwrap();
    }
}
