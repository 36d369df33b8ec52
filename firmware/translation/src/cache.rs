//! The cache of translations in NIC memory that all processes of a NIC share (UTLB §3.2).
//!
//! Direct-mapped: a translation has one place, found from its page number and its process. Without the
//! per-process offset, programs laid out alike would fight for the same entries.

use crate::page::{Frame, PAGE_NUMBER_END, Page, Process};
use alloc::boxed::Box;
use alloc::vec;

/// Most entries that a cache may have: 4 GiB of them.
pub const MAX_ENTRIES: usize = 1 << 28;

/// Shape of a [`SharedCache`].
///
/// ```
/// use mapwire_translation::CacheConfig;
/// let config = CacheConfig::default().with_entries(1024);
/// assert_eq!((config.entries, config.offset_per_process), (1024, true));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CacheConfig {
    /// Translations that fit: a power of two up to [`MAX_ENTRIES`]. UTLB §4.2 chose 8192, the default.
    pub entries: usize,
    /// Whether each process's pages start at a place of its own (UTLB §3.2). On by default.
    pub offset_per_process: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig {
            entries: 8192,
            offset_per_process: true,
        }
    }
}

impl CacheConfig {
    /// The same with another number of entries.
    pub fn with_entries(self, entries: usize) -> Self {
        CacheConfig { entries, ..self }
    }

    /// The same with the per-process offset on or off.
    pub fn with_offset_per_process(self, offset_per_process: bool) -> Self {
        CacheConfig {
            offset_per_process,
            ..self
        }
    }
}

/// A cache that cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CacheError {
    /// The index is a bit field of the page number, so only powers of two will do.
    #[error(
        "a translation cache of {entries} entries cannot be built; choose a power of two from 1 to {MAX_ENTRIES}, such as 8192"
    )]
    Entries {
        /// What was asked for.
        entries: usize,
    },
}

/// Page and process in one word, so that a hit is one comparison. Page numbers have 36 bits, processes 16; the
/// all-ones word is no translation's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag(u64);

const PAGE_BITS: u32 = PAGE_NUMBER_END.trailing_zeros();

impl Tag {
    const NONE: Tag = Tag(u64::MAX);

    #[inline(always)]
    fn new(process: Process, page: Page) -> Tag {
        Tag(u64::from(process.0) << PAGE_BITS | page.0)
    }

    #[inline(always)]
    fn process(self) -> Process {
        Process((self.0 >> PAGE_BITS) as u16)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: Tag,
    frame: Frame,
}

const VACANT: Entry = Entry {
    tag: Tag::NONE,
    frame: Frame::GARBAGE,
};

/// The NIC's bounded cache of the translation tables of all processes.
///
/// ```
/// use mapwire_translation::{CacheConfig, Frame, Page, Process, SharedCache};
/// let mut cache = SharedCache::new(CacheConfig::default())?;
/// cache.fill(Process(1), Page(5), Frame(77));
/// assert_eq!(cache.lookup(Process(1), Page(5)), Some(Frame(77)));
/// assert_eq!(cache.lookup(Process(2), Page(5)), None);
/// # Ok::<(), mapwire_translation::CacheError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedCache {
    entries: Box<[Entry]>,
    config: CacheConfig,
    offset_shift: u32,
    offset_factor: u32,
}

impl SharedCache {
    /// An empty cache.
    ///
    /// # Errors
    /// A number of entries that is not a power of two, or is too large, is named.
    pub fn new(config: CacheConfig) -> Result<Self, CacheError> {
        let CacheConfig {
            entries,
            offset_per_process,
        } = config;
        if !entries.is_power_of_two() || entries > MAX_ENTRIES {
            return Err(CacheError::Entries { entries });
        }
        Ok(SharedCache {
            entries: vec![VACANT; entries].into_boxed_slice(),
            config,
            // A shift by 32 would be none at all, so a cache of one entry shifts by 31; its mask takes the rest.
            offset_shift: (32 - entries.trailing_zeros()).min(31),
            offset_factor: if offset_per_process { 0x9E37_79B9 } else { 0 },
        })
    }

    /// The shape it was built with.
    pub fn config(&self) -> CacheConfig {
        self.config
    }

    /// Bytes of NIC memory that the entries take.
    pub fn memory_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// Consecutive processes start a golden section of the cache apart, so that those of any number of processes
    /// stay apart.
    #[inline(always)]
    fn place(&self, process: Process, page: Page) -> usize {
        let offset = u32::from(process.0).wrapping_mul(self.offset_factor) >> self.offset_shift;
        (page.0 as usize).wrapping_add(offset as usize) & (self.entries.len() - 1)
    }

    /// The frame of the page, if the cache has it.
    #[inline]
    pub fn lookup(&self, process: Process, page: Page) -> Option<Frame> {
        let entry = self.entries.get(self.place(process, page))?;
        // A page number of more than 36 bits would spill into the process's bits.
        (entry.tag == Tag::new(process, page) && page.in_address_space()).then_some(entry.frame)
    }

    /// Takes in a translation, in place of the one that is there. A page outside the 48-bit address space is not
    /// taken in.
    #[inline]
    pub fn fill(&mut self, process: Process, page: Page, frame: Frame) {
        if page.in_address_space() {
            let place = self.place(process, page);
            self.entries[place] = Entry {
                tag: Tag::new(process, page),
                frame,
            };
        }
    }

    /// Forgets the page of the process.
    #[inline]
    pub fn invalidate(&mut self, process: Process, page: Page) {
        if self.lookup(process, page).is_some() {
            let place = self.place(process, page);
            self.entries[place] = VACANT;
        }
    }

    /// Forgets all pages of the process. Takes a pass over the cache.
    pub fn invalidate_process(&mut self, process: Process) {
        for entry in &mut self.entries {
            if entry.tag != Tag::NONE && entry.tag.process() == process {
                *entry = VACANT;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn a_size_that_is_not_a_power_of_two_is_named_in_the_error() {
        for entries in [0, 3, 8191, MAX_ENTRIES * 2] {
            let error = SharedCache::new(CacheConfig::default().with_entries(entries)).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains(&std::format!("{entries} entries")),
                "{error}"
            );
        }
    }

    #[test]
    fn the_default_cache_takes_128_kibibytes() {
        assert_eq!(
            SharedCache::new(CacheConfig::default())
                .unwrap()
                .memory_bytes(),
            128 * 1024
        );
    }

    #[test]
    fn a_page_number_too_wide_never_aliases_another_process() {
        let mut cache =
            SharedCache::new(CacheConfig::default().with_offset_per_process(false)).unwrap();
        cache.fill(Process(1), Page(7), Frame(70));
        let alias = Page(PAGE_NUMBER_END | 7);
        assert_eq!(cache.lookup(Process(0), alias), None);
        cache.invalidate(Process(0), alias);
        cache.fill(Process(0), alias, Frame(66));
        assert_eq!(cache.lookup(Process(1), Page(7)), Some(Frame(70)));
        assert_eq!(cache.lookup(Process(u16::MAX), Page(u64::MAX)), None);
    }

    #[test]
    fn offsets_keep_equal_pages_of_sixteen_processes_apart() {
        let places = |offset: bool| {
            let cache =
                SharedCache::new(CacheConfig::default().with_offset_per_process(offset)).unwrap();
            let mut places: Vec<_> = (0..16)
                .map(|n| cache.place(Process(n), Page(1000)))
                .collect();
            places.sort_unstable();
            places
        };
        let apart = places(true);
        assert!(
            apart.windows(2).all(|pair| pair[1] - pair[0] >= 256),
            "{apart:?}"
        );
        assert_eq!(places(false), [1000; 16]);
    }

    /// One list of (process, page, frame) for each place.
    #[derive(Default)]
    struct Naive(BTreeMap<usize, (Process, Page, Frame)>);

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn it_agrees_with_a_map_from_place_to_translation(
            shift in 0u32..6,
            offset in any::<bool>(),
            ops in prop::collection::vec((0u8..10, 0u16..4, 0u64..80, 0u64..1000), 0..300),
        ) {
            let config = CacheConfig::default().with_entries(1 << shift).with_offset_per_process(offset);
            let mut cache = SharedCache::new(config).unwrap();
            let mut naive = Naive::default();
            for (op, process, page, frame) in ops {
                let (process, page, frame) = (Process(process), Page(page), Frame(frame));
                // The offset of a process is where its page 0 lives; all else follows from it.
                let place = (cache.place(process, Page(0)) + page.0 as usize) % config.entries;
                let there = naive.0.get(&place).copied().filter(|entry| (entry.0, entry.1) == (process, page));
                match op {
                    0..4 => prop_assert_eq!(cache.lookup(process, page), there.map(|entry| entry.2)),
                    4..8 => {
                        cache.fill(process, page, frame);
                        naive.0.insert(place, (process, page, frame));
                    }
                    8 => {
                        cache.invalidate(process, page);
                        if there.is_some() {
                            naive.0.remove(&place);
                        }
                    }
                    _ => {
                        cache.invalidate_process(process);
                        naive.0.retain(|_, entry| entry.0 != process);
                    }
                }
            }
            let used: BTreeSet<_> = naive.0.keys().copied().collect();
            for (place, entry) in cache.entries.iter().enumerate() {
                prop_assert_eq!(entry.tag != Tag::NONE, used.contains(&place));
            }
        }
    }
}
