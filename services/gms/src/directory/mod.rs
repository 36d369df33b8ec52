//! A node's part of the page directory (GMS-NP §2.2, §2.5): a hash table of rows of entries, which names the nodes that store each
//! page.

mod entry;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use thiserror::Error;

use crate::name::{PageHash, PageName};

pub use entry::{ENTRY_BYTES, Entry, MAX_COPIES};
pub use rows::{PlainRows, RowSize, Rows};
pub use scan::CheckPoints;

/// What operations looked at: cost models and statistics add it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Rows read.
    pub rows: u64,
    /// Entries compared with a name.
    pub entries: u64,
    /// Entries written.
    pub written: u64,
}

/// No row is left for one more entry. The page counts as not in global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the page directory of this node is full; give it more memory")]
pub struct DirectoryFull;

/// A hash table of [`Entry`]s in [`Rows`]. A hash chooses a primary row by its low bits; rows that overflow are chained.
///
/// Entries fill a chain without gaps. The number of the next row of a chain, plus 1, lies in the two bytes that each of the
/// row's first two entries spares, so nothing but the row is fetched. Where the rows lie in memory that somebody else spoils, pages are absent
/// and new ones find no room, and no operation panics or goes on for ever. A scan takes a row in pieces, which end at its
/// [`CheckPoints`].
#[derive(Clone, Debug)]
pub struct Directory<R = PlainRows> {
    rows: R,
    /// The row read last.
    row: Vec<u8>,
    held: Option<u32>,
    /// How many of its entries have arrived, and when the scan asks for more.
    arrived: usize,
    points: CheckPoints,
    /// What the lookup before found, for the update that follows it.
    found: Option<(PageName, Found)>,
    entries: usize,
    scanned: Scanned,
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug)]
struct At {
    row: u32,
    place: usize,
}

/// The entry of a page and where it lies, or the last place of its chain that was looked at: the first that is empty, or, past its
/// end, that of a full row.
type Found = Result<(At, Entry), At>;

impl<R: Rows> Directory<R> {
    /// An empty directory.
    #[must_use]
    pub fn new(rows: R) -> Self {
        Self {
            row: vec![0; rows.size().bytes()],
            held: None,
            arrived: 0,
            points: rows.check_points(),
            rows,
            found: None,
            entries: 0,
            scanned: Scanned::default(),
        }
    }

    /// Pages that it names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether it names no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of its rows.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// What all operations so far looked at.
    #[must_use]
    pub fn scanned(&self) -> Scanned {
        self.scanned
    }

    /// The entry of a page. Reads its row anew, whichever row was read last.
    pub fn lookup(&mut self, name: PageName, hash: PageHash) -> Option<Entry> {
        self.held = None;
        let found = self.find(name, hash);
        self.found = Some((name, found));
        found.ok().map(|(_, entry)| entry)
    }

    /// Writes an entry in place of the page's old one, or as a new one; takes out the page if it has no copies. Behind a
    /// [`lookup`](Self::lookup) of the same page it scans nothing.
    ///
    /// # Errors
    /// No room for a new entry.
    pub fn update(&mut self, entry: &Entry, hash: PageHash) -> Result<(), DirectoryFull> {
        let found = match self.found.take() {
            Some((name, found)) if name == entry.name() => found,
            _ => self.find(entry.name(), hash),
        };
        match found {
            Ok((at, _)) if entry.copies().len() > 0 => self.write(at, Some(entry)),
            Ok((at, _)) => self.close(at, hash),
            Err(_) if entry.copies().len() == 0 => {}
            Err(end) => self.append(end, entry)?,
        }
        Ok(())
    }

    /// Shows each entry to `change`, and writes it back; takes out those that then have no copies.
    pub fn change_all(&mut self, mut change: impl FnMut(&mut Entry)) {
        self.found = None;
        for primary in 0..self.rows.primary() {
            let mut row = Some(primary);
            let mut place = 0;
            let mut left = self.rows();
            while let Some(number) = row.filter(|_| left > 0) {
                self.fetch(number);
                let Some(mut entry) = self.entry(place) else { break };
                let before = entry;
                change(&mut entry);
                let at = At { row: number, place };
                if entry.copies().len() == 0 {
                    // The last entry of the chain moves here and is looked at next.
                    self.close(at, PageHash(primary));
                    continue;
                }
                if entry != before {
                    self.write(at, Some(&entry));
                }
                place += 1;
                if place == self.rows.size().entries() {
                    row = self.next_row();
                    place = 0;
                    left -= 1;
                }
            }
        }
    }

    /// Shows each entry to `see`. What that looks at is not counted.
    pub fn for_each(&self, mut see: impl FnMut(&Entry)) {
        let size = self.rows.size();
        let mut bytes = vec![0; size.bytes()];
        for primary in 0..self.rows.primary() {
            let mut row = Some(primary);
            let mut left = self.rows();
            while let Some(number) = row.filter(|_| left > 0) {
                left -= 1;
                self.rows.read(number, 0..size.entries(), &mut bytes);
                let (entries, _) = bytes.as_chunks();
                let count = entries.iter().map_while(Entry::from_bytes).inspect(&mut see).count();
                row = if count == size.entries() { self.next_of([&entries[0], &entries[1]]) } else { None };
            }
        }
    }

    fn find(&mut self, name: PageName, hash: PageHash) -> Found {
        let mut row = self.primary(hash);
        let mut left = self.rows();
        loop {
            left -= 1;
            self.fetch(row);
            for place in 0..self.rows.size().entries() {
                let Some(entry) = self.entry(place) else { return Err(At { row, place }) };
                self.scanned.entries += 1;
                if entry.name() == name {
                    return Ok((At { row, place }, entry));
                }
            }
            match self.next_row().filter(|_| left > 0) {
                Some(next) => row = next,
                None => {
                    let place = self.rows.size().entries();
                    return Err(At { row, place });
                }
            }
        }
    }

    fn append(&mut self, end: At, entry: &Entry) -> Result<(), DirectoryFull> {
        let at = if end.place == self.rows.size().entries() {
            let row = self.rows.allocate().ok_or(DirectoryFull)?;
            self.set_next_row(end.row, Some(row));
            self.fetch(row);
            At { row, place: 0 }
        } else {
            end
        };
        self.write(at, Some(entry));
        self.entries += 1;
        Ok(())
    }

    /// Takes an entry out: the last one of the chain takes its place.
    fn close(&mut self, at: At, hash: PageHash) {
        let (last, entry, before) = self.last(hash);
        if (at.row, at.place) != (last.row, last.place) {
            self.fetch(at.row);
            self.write(at, entry.as_ref());
        }
        self.fetch(last.row);
        self.write(last, None);
        self.entries = self.entries.saturating_sub(1);
        if last.place == 0
            && let Some(before) = before
        {
            self.set_next_row(before, None);
            self.rows.free(last.row);
        }
        self.fetch(at.row);
    }

    /// The last entry of a chain that has one, where it lies, and the row before its row.
    fn last(&mut self, hash: PageHash) -> (At, Option<Entry>, Option<u32>) {
        let mut row = self.primary(hash);
        let mut before = None;
        let mut left = self.rows();
        self.fetch(row);
        while let Some(next) = self.next_row().filter(|_| left > 1) {
            left -= 1;
            before = Some(row);
            row = next;
            self.fetch(row);
        }
        let place = (0..self.rows.size().entries()).rev().find(|&place| self.entry(place).is_some()).unwrap_or(0);
        (At { row, place }, self.entry(place), before)
    }

    /// How many rows there are: no chain is longer.
    fn rows(&self) -> usize {
        self.rows.bytes() / self.rows.size().bytes()
    }

    fn primary(&self, hash: PageHash) -> u32 {
        hash.0 & (self.rows.primary() - 1)
    }

    fn fetch(&mut self, row: u32) {
        if self.held != Some(row) {
            self.scanned.rows += 1;
            self.held = Some(row);
            self.arrived = 0;
            self.points = self.rows.check_points();
            // The check before the first entry is what asks for the row.
            let _ = self.points.next();
        }
    }

    /// Waits until the entry at `place` of the row that was read last has arrived, and all before it.
    fn arrive(&mut self, place: usize) {
        let Some(row) = self.held else {
            debug_assert!(false, "a row is held while its entries are looked at");
            return;
        };
        let entries = self.rows.size().entries();
        while self.arrived <= place {
            let until = match self.points.next() {
                Some(point) => usize::try_from(point).map_or(entries, |point| point.min(entries)),
                None => entries,
            };
            let places = self.arrived..until.max(self.arrived);
            let bytes = places.start * ENTRY_BYTES..places.end * ENTRY_BYTES;
            self.arrived = places.end;
            self.rows.read(row, places, &mut self.row[bytes]);
        }
    }

    fn bytes_at(&mut self, place: usize) -> [u8; ENTRY_BYTES] {
        self.arrive(place);
        core::array::from_fn(|byte| self.row[place * ENTRY_BYTES + byte])
    }

    /// An entry of the row that was read last.
    fn entry(&mut self, place: usize) -> Option<Entry> {
        Entry::from_bytes(&self.bytes_at(place))
    }

    /// Writes an entry of the row that was read last; nothing empties the place.
    fn write(&mut self, at: At, entry: Option<&Entry>) {
        let link = Entry::link_of(&self.bytes_at(at.place));
        let none = Entry::new(PageName::default(), 0);
        let bytes = entry.unwrap_or(&none).to_bytes(link);
        self.write_bytes(at, &bytes);
    }

    fn write_bytes(&mut self, at: At, bytes: &[u8; ENTRY_BYTES]) {
        debug_assert_eq!(self.held, Some(at.row), "the row read last is written");
        self.scanned.written += 1;
        self.row[at.place * ENTRY_BYTES..][..ENTRY_BYTES].copy_from_slice(bytes);
        self.rows.write(at.row, at.place, bytes);
    }

    /// The row that follows the one read last.
    fn next_row(&mut self) -> Option<u32> {
        let first = [self.bytes_at(0), self.bytes_at(1)];
        self.next_of([&first[0], &first[1]])
    }

    /// The row that follows the one with these first entries.
    fn next_of(&self, first: [&[u8; ENTRY_BYTES]; 2]) -> Option<u32> {
        let [low, high] = first.map(|entry| u32::from(Entry::link_of(entry)));
        let next = (low | high << 16).checked_sub(1)?;
        ((next as usize) < self.rows()).then_some(next)
    }

    fn set_next_row(&mut self, row: u32, next: Option<u32>) {
        self.fetch(row);
        let link = next.map_or(0, |next| next + 1).to_le_bytes();
        for place in [0, 1] {
            let mut bytes = self.bytes_at(place);
            bytes[ENTRY_BYTES - 2..].copy_from_slice(&link[2 * place..2 * place + 2]);
            self.write_bytes(At { row, place }, &bytes);
        }
    }
}
