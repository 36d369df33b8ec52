//! A rank's counts, read back from its file.

use super::{
    BYTES, COHERENCE, DIFFS, FIRST, HEAD, IN_ROW, KEY, LEFT_OUT, LENGTH, MAGIC, MOST_RANGES, MOST_SITES,
    MOST_TEXT_BYTES, Means, PART_WORDS, PARTS, RANGES, RANK, READS, RETURNED, ROOM, SITES, VERSION, WRITES, range_at,
    site_at, unit_at,
};

/// Counts of a rank, which may have written anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub rank: u32,
    coherence: u64,
    pub sites: Vec<Site>,
    pub ranges: Vec<Range>,
    pub units: Vec<Unit>,
    /// Allocations whose ranges found no room.
    pub left_out: u64,
}

/// A place of the program that allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Path of a file, or a name.
    pub text: String,
    /// Line of the file; 0 for a name.
    pub line: u32,
    pub allocations: u64,
    pub bytes: u64,
}

/// Something that a site has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First position, and the one behind the last.
    pub first: u64,
    pub end: u64,
    /// Index of the site.
    pub site: usize,
}

/// A minipage or a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// The same in all ranks.
    pub key: u64,
    /// Position of the rank's first fault, or the unit's if it had none.
    pub first: u64,
    pub read_faults: u64,
    pub write_faults: u64,
    /// Bytes that this rank has stored into others or fetched from them.
    pub bytes: u64,
    /// Rights that came back shortly after they were lost.
    pub returned: u64,
    /// Faults a little behind the one before.
    pub in_row: u64,
    /// Length in bytes; 0 if it is not known.
    pub length: u64,
    pub diffs: u64,
    /// Parts at which stores have faulted, a bit each.
    pub parts: [u64; PART_WORDS],
}

impl Unit {
    /// Whether it stands for many that found no room.
    #[must_use]
    pub fn is_area(&self) -> bool {
        self.key & 1 << 62 != 0
    }

    /// The view that it lies in.
    #[must_use]
    pub fn view(&self) -> u16 {
        (self.key >> 52 & 0x3ff) as u16
    }

    /// Read and write faults.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.read_faults.saturating_add(self.write_faults)
    }
}

impl Report {
    /// A report with this content.
    #[must_use]
    pub fn of(rank: u32, kept: Means, ranges: Vec<Range>, sites: Vec<Site>, units: Vec<Unit>) -> Self {
        Self { rank, coherence: kept as u64, sites, ranges, units, left_out: 0 }
    }

    /// Parses the file of a rank; `None` if it is malformed.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word));
        if word(0) != MAGIC || word(1) != VERSION || words.len() < HEAD {
            return None;
        }
        let count = |at: usize, most: usize| usize::try_from(word(at)).unwrap_or(most).min(most);
        let sites: Vec<Site> = (0..count(SITES, MOST_SITES)).map(|site| Self::site(&word, site_at(site))).collect();
        let range = |number| {
            let at = range_at(number);
            let site = usize::try_from(word(at + 2)).ok().filter(|site| *site < sites.len())?;
            let (first, end) = (word(at), word(at + 1));
            (first < end).then_some(Range { first, end, site })
        };
        let ranges = (0..count(RANGES, MOST_RANGES)).filter_map(range).collect();
        let room = words.len().saturating_sub(unit_at(0)) / super::UNIT_WORDS;
        let unit = |number| {
            let at = unit_at(number);
            Unit {
                key: word(at + KEY),
                first: word(at + FIRST),
                read_faults: word(at + READS),
                write_faults: word(at + WRITES),
                bytes: word(at + BYTES),
                returned: word(at + RETURNED),
                in_row: word(at + IN_ROW),
                length: word(at + LENGTH),
                diffs: word(at + DIFFS),
                parts: core::array::from_fn(|part| word(at + PARTS + part)),
            }
        };
        let units = (0..count(ROOM, room)).map(unit).filter(|unit| unit.key != 0).collect();
        Some(Self {
            rank: u32::try_from(word(RANK)).ok()?,
            coherence: word(COHERENCE),
            sites,
            ranges,
            units,
            left_out: word(LEFT_OUT),
        })
    }

    /// True if the memory was ever kept coherent in this way.
    #[must_use]
    pub fn was(&self, kept: Means) -> bool {
        self.coherence & kept as u64 != 0
    }

    fn site(word: &impl Fn(usize) -> u64, at: usize) -> Site {
        let text: Vec<u8> = (0..MOST_TEXT_BYTES / 8).flat_map(|chunk| word(at + 4 + chunk).to_ne_bytes()).collect();
        let length = usize::try_from(word(at + 3)).unwrap_or(usize::MAX).min(MOST_TEXT_BYTES);
        // It goes to a terminal.
        let text = String::from_utf8_lossy(&text[..length]).replace(char::is_control, "?");
        let line = u32::try_from(word(at + 2)).unwrap_or(u32::MAX);
        Site { text, line, allocations: word(at), bytes: word(at + 1) }
    }
}
