//! Counts of what tests leave behind.

pub(crate) use children::{child, close, drop_privileges, free_base, in_child, lower_limit, refuse_call};
use mapwire_testing::children;
use mapwire_wire::{Signal, SignalOp};

use crate::memory::{MappedBuffer, SharedBuffer};

/// Number of mapped ranges whose name contains `name`, and of open descriptors with such a path.
pub(crate) fn count_of(name: &str) -> (usize, usize) {
    let ranges = crate::maps::mapped_ranges();
    let mapped = ranges.iter().filter(|range| range.name.contains(name)).count();
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().contains(name))
        .count();
    (mapped, open)
}

/// Whether a core dump includes the mapping at `address`.
pub(crate) fn is_dumped(address: usize) -> bool {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|word| word.split_once('-'));
        let ends = range.and_then(|(start, end)| {
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(start)?..number(end)?)
        });
        if let Some(range) = ends {
            inside = range.contains(&address);
        } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return !flags.split(' ').any(|flag| flag == "dd");
        }
    }
    panic!("nothing is mapped at {address:#x}");
}

/// Stores a word of an import after all that was stored there before; false, and nothing stored, if it cannot.
pub(crate) fn store_word(import: &MappedBuffer, offset: usize, value: u64) -> bool {
    import.put_signal(offset, &[][..], Signal { offset: offset as u64, op: SignalOp::Set, value })
}

/// Loads a word of an export before all that is loaded there later.
pub(crate) fn load_word(buffer: &SharedBuffer, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    buffer.read(offset, &mut bytes).unwrap();
    core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
    u64::from_le_bytes(bytes)
}
