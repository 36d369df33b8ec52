//! A profile of a rank's shared memory: which places of the program allocate it, and what their minipages and pages cost.
//!
//! A rank counts in a file that it maps, of fixed length, in a folder that the launcher names. So counting takes no lock and allocates
//! nothing, and what a rank has counted is there also when it was killed. The launcher [reads](Report::read) the files of all ranks and
//! joins them: a rank knows where *it* allocates, and faults on what others have allocated.
//!
//! | part of the file | holds |
//! |---|---|
//! | head | mark, version, rank, how the memory was kept coherent, and how much there is of the rest |
//! | sites | places of the program that allocate: file and line, or a name |
//! | ranges | what they have allocated, as positions in the memory |
//! | units | minipages and pages with faults or traffic: a hash table without removal |
//!
//! All are words of 8 bytes in the order of this computer's bytes. A *position* is an offset in the shared memory, with the number of the
//! opening in its upper 16 bits: a memory that is opened again is another.

mod report;
mod table;

use std::path::{Path, PathBuf};

pub use report::{Range, Report, Site, Unit};
pub use table::{CallSite, Profile, Right, Span};

/// First word.
const MAGIC: u64 = u64::from_le_bytes(*b"mwprof\0\0");
/// Second word. Changes with the meaning or the position of any word.
const VERSION: u64 = 1;

/// Words of the head: magic, version, rank, coherence, sites, ranges, units there is room for, ranges left out.
const HEAD: usize = 8;
const RANK: usize = 2;
const COHERENCE: usize = 3;
const SITES: usize = 4;
const RANGES: usize = 5;
const ROOM: usize = 6;
const LEFT_OUT: usize = 7;

/// Sites at most. The last stands for all that find no room.
const MOST_SITES: usize = 1024;
/// Words of a site: allocations, bytes, line (0: a name), bytes of the text, the text.
const SITE_WORDS: usize = 32;
const MOST_TEXT_BYTES: usize = (SITE_WORDS - 4) * 8;

const MOST_RANGES: usize = 16_384;
/// Words of a range: first position, position behind the last, site.
const RANGE_WORDS: usize = 3;

/// Words of a unit.
const UNIT_WORDS: usize = 24;
/// A 1, whether it stands for an area ([`AREA_PAGES`]), view, and page of the position.
const KEY: usize = 0;
/// Position of the first fault.
const FIRST: usize = 1;
const READS: usize = 2;
const WRITES: usize = 3;
/// Bytes that moved: stored into other ranks, fetched from them, and changes stored at homes.
const BYTES: usize = 4;
/// Rights that came back shortly after they were lost.
const RETURNED: usize = 5;
/// Faults a little behind the fault before.
const IN_ROW: usize = 6;
/// The access that the rank has, or had before it lost some, and when it did.
const RIGHT: usize = 7;
const LOST: usize = 8;
const LOST_NS: usize = 9;
/// Length in bytes; 0 while it is not known.
const LENGTH: usize = 10;
/// Diffs sent to homes.
const DIFFS: usize = 11;
/// Words of 512 bits: the parts of the unit at which stores have faulted. A part is a word of 8 bytes of its page, or a 512th of a longer
/// unit.
const PARTS: usize = 16;
const PART_WORDS: usize = 8;

/// Pages that are counted together where the table has no room for single ones.
const AREA_PAGES: u64 = 1024;

/// A right is back shortly after its loss within so many nanoseconds.
const SHORTLY_NS: u64 = 100_000_000;

/// Means of coherence, as bits: a memory may be opened more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Means {
    /// By the processor: nothing faults.
    Processor = 1,
    /// By minipages.
    Minipages = 2,
    /// By lazy release consistency.
    Lazy = 4,
}

/// Units that there is room for: fewer in large jobs, whose files are many.
const fn units(ranks: u32) -> usize {
    if ranks <= 16 { 1 << 14 } else { 1 << 11 }
}

const fn site_at(site: usize) -> usize {
    HEAD + site * SITE_WORDS
}

const fn range_at(range: usize) -> usize {
    site_at(MOST_SITES) + range * RANGE_WORDS
}

const fn unit_at(unit: usize) -> usize {
    range_at(MOST_RANGES) + unit * UNIT_WORDS
}

const fn file_bytes(units: usize) -> usize {
    8 * unit_at(units)
}

/// Length of the longest profile, in bytes.
pub const MOST_FILE_BYTES: u64 = file_bytes(units(1)) as u64;

/// The file of a rank in the folder that the launcher names.
#[must_use]
pub fn file_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("{rank}.profile"))
}

#[cfg(test)]
mod tests;
