//! Whether a library can be preloaded into a program: the dynamic loader must start it.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of the header of a 64-bit ELF file, and of one of its program headers.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// `PT_INTERP`: names the dynamic loader.
const INTERPRETER: u32 = 3;
/// Bits of a mode with which the loader ignores `LD_PRELOAD`.
const SET_ID: u32 = 0o6000;

/// Why nothing can be preloaded into the program; `None`: it can, or the kernel will say what is wrong. Scripts are started by
/// another program, of which nothing is known here.
pub(super) fn unsuited(path: &Path) -> Option<&'static str> {
    let file = File::open(path).ok()?;
    let of = file.metadata().ok()?;
    let is_ours = of.uid() == rustix::process::geteuid().as_raw();
    if of.mode() & SET_ID != 0 && !is_ours {
        return Some("runs with the rights of another user or group");
    }
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    if header[4] != 2 {
        return Some("is a 32-bit program");
    }
    let two = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let (bytes, count) = (usize::from(two(54)), two(56));
    let mut first = [0; 8];
    first.copy_from_slice(&header[32..40]);
    let first = u64::from_ne_bytes(first);
    if bytes != PROGRAM_HEADER_BYTES {
        return None;
    }
    let is_interpreter = |number: u16| {
        let mut kind = [0; 4];
        let at = first.checked_add(u64::from(number) * PROGRAM_HEADER_BYTES as u64)?;
        file.read_exact_at(&mut kind, at).ok()?;
        Some(u32::from_ne_bytes(kind) == INTERPRETER)
    };
    let has_loader = (0..count).any(|number| is_interpreter(number) == Some(true));
    (!has_loader).then_some("is statically linked")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file with a header of `count` program headers, and those.
    fn file(class: u8, kinds: &[u32]) -> tempfile::NamedTempFile {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(b"\x7fELF");
        header[4] = class;
        header[32] = HEADER_BYTES as u8;
        header[54] = PROGRAM_HEADER_BYTES as u8;
        header[56] = kinds.len() as u8;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&header).unwrap();
        for kind in kinds {
            let mut entry = [0; PROGRAM_HEADER_BYTES];
            entry[..4].copy_from_slice(&kind.to_ne_bytes());
            file.write_all(&entry).unwrap();
        }
        file
    }

    #[test]
    fn programs_that_name_a_loader_are_suited() {
        assert_eq!(unsuited(&std::env::current_exe().unwrap()), None);
        assert_eq!(unsuited(file(2, &[6, 3, 1]).path()), None);
    }

    #[test]
    fn static_and_32_bit_programs_are_not() {
        assert_eq!(unsuited(file(2, &[1, 1]).path()), Some("is statically linked"));
        assert_eq!(unsuited(file(2, &[]).path()), Some("is statically linked"));
        assert_eq!(unsuited(file(1, &[3]).path()), Some("is a 32-bit program"));
    }

    #[test]
    fn scripts_and_what_is_cut_off_are_left_to_the_kernel() {
        let mut script = tempfile::NamedTempFile::new().unwrap();
        script.write_all(b"#!/bin/sh\n").unwrap();
        assert_eq!(unsuited(script.path()), None);
        assert_eq!(unsuited(Path::new("/nowhere")), None);
    }
}
