//! What is mapped where in this process, from `/proc/self/maps`. For cold paths: exports and
//! error messages.

use crate::memory::MemoryError;

/// One line of `/proc/self/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MappedRange {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// File or `[heap]`, `[stack]`; empty for anonymous memory.
    pub(crate) name: String,
}

/// All mapped ranges in order of address; empty if `/proc` is not mounted.
pub(crate) fn mapped_ranges() -> Vec<MappedRange> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(parse_line)
        .collect()
}

fn parse_line(line: &str) -> Option<MappedRange> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let name = words.nth(3).unwrap_or("").trim().to_owned();
    Some(MappedRange {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        readable: rights.first() == Some(&b'r'),
        writable: rights.get(1) == Some(&b'w'),
        name,
    })
}

/// Whether all of `address..address + bytes` is mapped for loads, and for stores if `stores`.
///
/// An answer of the moment: another thread may unmap it right after. Reads `/proc/self/maps`,
/// tens of microseconds: for exports, not for every send. Without `/proc` it falls back on
/// [`memory_is_mapped`](super::memory::memory_is_mapped), which does not see rights.
///
/// # Errors
/// [`MemoryError::NotMapped`] with the first address that lacks something.
pub fn check_memory(address: usize, bytes: usize, stores: bool) -> Result<(), MemoryError> {
    let wanted = if stores { "loads and stores" } else { "loads" };
    let fail = |at, found| MemoryError::NotMapped {
        address,
        bytes,
        wanted,
        at,
        found,
    };
    let end = address
        .checked_add(bytes)
        .ok_or_else(|| fail(address, "at the end of the address space"))?;
    let ranges = mapped_ranges();
    if ranges.is_empty() {
        return if crate::memory::memory_is_mapped(address, bytes) {
            Ok(())
        } else {
            Err(fail(address, "not mapped"))
        };
    }
    let mut at = address;
    for range in ranges {
        if at >= end {
            break;
        }
        if range.end <= at {
            continue;
        }
        if range.start > at {
            return Err(fail(at, "not mapped"));
        }
        if !range.readable {
            return Err(fail(at, "mapped without loads"));
        }
        if stores && !range.writable {
            return Err(fail(at, "mapped without stores"));
        }
        at = range.end;
    }
    if at < end {
        Err(fail(at, "not mapped"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_file_name_that_has_spaces_is_read_whole() {
        let range = parse_line(
            "7f00-8f00 rw-p 00000000 00:01 1234                       /memfd:a b (deleted)",
        )
        .unwrap();
        assert_eq!((range.start, range.end), (0x7f00, 0x8f00));
        assert!(range.readable && range.writable);
        assert_eq!(range.name, "/memfd:a b (deleted)");
    }

    #[test]
    fn heap_memory_passes_and_unmapped_or_constant_memory_is_named() {
        let data = vec![0u8; 100_000];
        let address = data.as_ptr().addr();
        assert_eq!(check_memory(address, data.len(), true), Ok(()));
        assert!(matches!(
            check_memory(8, 16, false),
            Err(MemoryError::NotMapped {
                at: 8,
                found: "not mapped",
                ..
            })
        ));
        static CONSTANT: [u8; 16] = *b"read only bytes.";
        let constant = CONSTANT.as_ptr().addr();
        assert_eq!(check_memory(constant, 16, false), Ok(()));
        let error = check_memory(constant, 16, true).unwrap_err();
        assert!(error.to_string().contains("without stores"), "{error}");
        assert!(check_memory(usize::MAX - 4, 16, false).is_err());
    }
}
