//! The mappings of this process, from `/proc/self/maps`. For cold paths: exports and error messages.

use core::ops::Range;

use rustix::mm::MprotectFlags;

use crate::mapping::Rights;
use crate::memory::error::MemoryError;
use crate::page::PAGE_BYTES;
use crate::procmap::{self, MappedRange};

/// The mappings, queried range by range.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    /// All ranges, read once, if the kernel answers no single queries.
    text: Option<Vec<MappedRange>>,
}

impl Maps {
    /// The first mapped range that ends after `address`.
    pub(crate) fn at_or_after(&mut self, address: usize) -> Option<MappedRange> {
        if self.text.is_none()
            && let Ok(range) = procmap::range_at_or_after(address)
        {
            return range;
        }
        let ranges = self.text.get_or_insert_with(mapped_ranges);
        ranges.iter().find(|range| range.end > address).cloned()
    }

    /// Whether nothing is known because `/proc` is not mounted.
    pub(crate) fn is_blind(&self) -> bool {
        self.text.as_ref().is_some_and(Vec::is_empty)
    }
}

/// All mapped ranges in order of address; empty if `/proc` is not mounted.
pub(crate) fn mapped_ranges() -> Vec<MappedRange> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(parse_line).collect()
}

/// The part of `range` that something is mapped in first, and its name; `None` if nothing is.
#[must_use]
pub fn first_within(range: &Range<usize>) -> Option<(Range<usize>, String)> {
    let found = mapped_ranges().into_iter().find(|found| found.end > range.start && found.start < range.end)?;
    let name = if found.name.is_empty() { "anonymous memory".to_owned() } else { found.name };
    Some((found.start..found.end, name))
}

fn parse_line(line: &str) -> Option<MappedRange> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = words.next()?.parse().ok()?;
    let name = words.next().unwrap_or("").trim().to_owned();
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some(MappedRange {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        readable: rights.first() == Some(&b'r'),
        writable: rights.get(1) == Some(&b'w'),
        executable: rights.get(2) == Some(&b'x'),
        shared: rights.get(3) == Some(&b's'),
        page_bytes: if name.contains("huge") { 0 } else { PAGE_BYTES as u64 },
        offset,
        device: (number(major)?, number(minor)?),
        inode,
        name,
    })
}

/// Whether all of `address..address + bytes` is anonymous private memory, in pages of the usual size, with exactly the rights to load and
/// store. Only true at that moment, as [`check_memory`]; false if nothing is known.
#[must_use]
pub fn is_plain_memory(address: usize, bytes: usize) -> bool {
    let Some(end) = address.checked_add(bytes) else {
        return false;
    };
    let rights = MprotectFlags::READ | MprotectFlags::WRITE;
    let mut maps = Maps::default();
    let mut at = address;
    while at < end {
        match maps.at_or_after(at) {
            Some(range)
                if range.start <= at
                    && range.rights() == rights
                    && !range.shared
                    && range.inode == 0
                    && range.page_bytes == PAGE_BYTES as u64 =>
            {
                at = range.end;
            }
            _ => return false,
        }
    }
    true
}

/// Whether all of `address..address + bytes` is mapped for loads, and for stores if `stores`.
///
/// Only true at that moment: another thread may unmap it right after. Takes less than a microsecond for each mapped range; before Linux
/// 6.11 tens of microseconds, to read `/proc/self/maps`: for exports, not for every send. Without `/proc` it falls back on
/// [`memory_is_mapped`](super::memory::memory_is_mapped), which does not see rights.
///
/// # Errors
/// [`MemoryError::NotMapped`] with the first address that fails.
pub fn check_memory(address: usize, bytes: usize, stores: bool) -> Result<(), MemoryError> {
    let wanted = if stores { "loads and stores" } else { "loads" };
    let fail = |at, found| MemoryError::NotMapped { address, bytes, wanted, at, found };
    let end = address.checked_add(bytes).ok_or_else(|| fail(address, "at the end of the address space"))?;
    let mut maps = Maps::default();
    let mut at = address;
    while at < end {
        let range = match maps.at_or_after(at) {
            Some(range) if range.start <= at => range,
            None if maps.is_blind() && crate::memory::raw::memory_is_mapped(address, bytes) => break,
            _ => return Err(fail(at, "not mapped")),
        };
        if !range.readable {
            return Err(fail(at, "mapped without loads"));
        }
        if stores && !range.writable {
            return Err(fail(at, "mapped without stores"));
        }
        at = range.end;
    }
    Ok(())
}

/// Memory that is not open to both loads and stores.
#[derive(Debug, PartialEq, Eq)]
pub struct ClosedPart {
    pub range: Range<usize>,
    pub rights: Rights,
}

/// The parts of a range that are mapped, but not for both loads and stores.
#[must_use]
pub fn closed_parts(range: &Range<usize>) -> Vec<ClosedPart> {
    let (mut maps, mut parts, mut at) = (Maps::default(), Vec::new(), range.start);
    while at < range.end
        && let Some(found) = maps.at_or_after(at)
        && found.start < range.end
    {
        let part = found.start.max(at)..found.end.min(range.end);
        at = part.end;
        let rights = match (found.readable, found.writable) {
            (true, true) => continue,
            (true, false) => Rights::Read,
            (false, _) => Rights::None,
        };
        parts.push(ClosedPart { range: part, rights });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_file_name_that_has_spaces_is_read_whole() {
        let range =
            parse_line("7f00-8f00 rw-p 00000000 00:01 1234                       /memfd:a b (deleted)").unwrap();
        assert_eq!((range.start, range.end), (0x7f00, 0x8f00));
        assert!(range.readable && range.writable && !range.executable && !range.shared);
        assert_eq!((range.offset, range.device, range.inode), (0, (0, 1), 1234));
        assert_eq!(range.name, "/memfd:a b (deleted)");
    }

    #[test]
    fn the_kernel_tells_without_text_what_its_text_says() {
        let mut maps = Maps::default();
        let mut at = 0;
        let mut told = Vec::new();
        while let Some(range) = maps.at_or_after(at) {
            at = range.end;
            told.push(range);
        }
        if maps.text.is_some() {
            mapwire_testing::skip!("this kernel answers no question about single ranges");
            return;
        }
        // Other tests map and unmap meanwhile: the program's own code and data stay.
        let code = heap_memory_passes_and_unmapped_or_constant_memory_is_named as *const () as usize;
        for place in [code, code + 1] {
            let has = |range: &&MappedRange| (range.start..range.end).contains(&place);
            let text = mapped_ranges();
            let read = text.iter().find(has).unwrap();
            let asked = told.iter().find(has).unwrap();
            let named = MappedRange { name: read.name.clone(), ..asked.clone() };
            assert_eq!(&named, read);
        }
    }

    #[test]
    fn heap_memory_passes_and_unmapped_or_constant_memory_is_named() {
        let data = vec![0u8; 100_000];
        let address = data.as_ptr().addr();
        assert_eq!(check_memory(address, data.len(), true), Ok(()));
        assert!(matches!(check_memory(8, 16, false), Err(MemoryError::NotMapped { at: 8, found: "not mapped", .. })));
        static CONSTANT: [u8; 16] = *b"read only bytes.";
        let constant = CONSTANT.as_ptr().addr();
        assert_eq!(check_memory(constant, 16, false), Ok(()));
        let error = check_memory(constant, 16, true).unwrap_err();
        assert!(error.to_string().contains("without stores"), "{error}");
        assert!(check_memory(usize::MAX - 4, 16, false).is_err());
    }

    #[test]
    fn plain_memory_is_private_and_of_no_file_and_open_to_loads_and_stores() {
        let heap = vec![0_u8; 4 * PAGE_BYTES];
        let address = heap.as_ptr().addr();
        assert!(is_plain_memory(address, heap.len()));
        assert!(!is_plain_memory(8, 16) && !is_plain_memory(usize::MAX, 2));
        let code = plain_memory_is_private_and_of_no_file_and_open_to_loads_and_stores as *const ();
        assert!(!is_plain_memory(code as usize, 16));
    }
}
