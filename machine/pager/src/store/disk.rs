//! A store in files of a local disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use mapwire_host::page::PAGE_BYTES;

use crate::sparse::Sparse;
use crate::store::layers::{CALL_PAGES, Layer, failure};
use crate::store::{BackingStore, IncomingPage, MAX_REGIONS, OutgoingPage, PageId, StoreError};

/// Most layers of a store: each is an open file. Their numbers, from 1, fit a byte.
const MOST_LAYERS: usize = 200;

/// Keeps pages in an unnamed file, which the kernel frees when the store is dropped, or when the process dies.
///
/// A region takes one range of the sparse file, so neighbouring pages are written and read by one call. `O_DIRECT` bypasses the page cache
/// if the file system supports it; otherwise pages are dropped from the cache after use.
///
/// After a fork, parent and child read earlier pages from the same file, and each writes to one of its own. Pages that they overwrite or
/// discard take disk space until both have gathered their pages, which each does at its 200th file, or have ended.
#[derive(Debug)]
pub struct DiskStore {
    folder: PathBuf,
    files: RwLock<Files>,
}

impl DiskStore {
    /// Makes a store in the folder `path`.
    ///
    /// # Errors
    /// The folder does not exist, is not writable, or its file system has no unnamed files.
    pub fn new(path: impl AsRef<Path>) -> std::io::Result<Self> {
        // The program may change its working folder before a fork.
        let folder = path.as_ref().canonicalize()?;
        let layer = Layer::new(&folder)?;
        Ok(Self {
            folder,
            files: RwLock::new(Files { layers: vec![layer], regions: (0..MAX_REGIONS).map(|_| None).collect() }),
        })
    }

    fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn files_mut(&self) -> RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_layer(&self) -> Result<Layer, StoreError> {
        Layer::new(&self.folder).map_err(|errno| failure("open of another paging file", errno))
    }
}

impl BackingStore for DiskStore {
    fn add_region(&self, region: u32, pages: u64) -> Result<(), StoreError> {
        let mut files = self.files_mut();
        // The first gap that is large enough. Allocates nothing: the program's allocator may be in a region, and a fault there would need
        // this lock.
        let mut first = 0_u64;
        while let Some(extent) = files
            .regions
            .iter()
            .flatten()
            .find(|extent| extent.first < first.saturating_add(pages) && first < extent.first + extent.pages)
        {
            first = extent.first + extent.pages;
        }
        let end = first.checked_add(pages).and_then(|end| end.checked_mul(PAGE_BYTES as u64));
        let most = mapwire_host::limits::file_bytes().0.unwrap_or(i64::MAX as u64);
        if end.is_none_or(|end| end > most) {
            return Err(StoreError::Region {
                reason: "the file would be longer than this process may make one: raise `ulimit -f`",
            });
        }
        let layers = Sparse::new(pages as usize).map_err(|errno| failure("mmap", errno))?;
        let place = files
            .regions
            .get_mut(region as usize)
            .ok_or(StoreError::Region { reason: "a region's number is below 1024" })?;
        *place = Some(Extent { first, pages, layers });
        Ok(())
    }

    fn remove_region(&self, region: u32) {
        let mut files = self.files_mut();
        let extent = files.regions.get_mut(region as usize);
        if let (Some(extent), Some(top)) = (extent.and_then(Option::take), files.layers.last()) {
            // Before another region can take the range.
            top.punch(extent.first, extent.pages);
        }
    }

    fn store(&self, pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        let files = self.files();
        let (top, number) = files.top()?;
        files.write(top, pages)?;
        for page in pages {
            files.extent(page.id)?.set_layer(page.id.page, number);
        }
        Ok(())
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        self.files().fetch(pages)
    }

    fn discard(&self, region: u32, first: u64, pages: u64) {
        let files = self.files();
        let id = PageId { region, page: first };
        let (Ok(extent), Ok((top, number))) = (files.extent(id), files.top()) else {
            return;
        };
        let mut is_in_top = false;
        for page in first..first.saturating_add(pages).min(extent.pages) {
            let layer = extent.layer(page);
            is_in_top |= layer == number;
            if layer != 0 {
                extent.set_layer(page, 0);
            }
        }
        if is_in_top {
            top.punch(extent.first + first, pages.min(extent.pages - first));
        }
    }

    fn seal(&self) -> Result<(), StoreError> {
        let mut files = self.files_mut();
        if !files.top()?.0.is_written() {
            return Ok(());
        }
        let next = self.new_layer()?;
        if files.layers.len() >= MOST_LAYERS {
            files.gather(self.new_layer()?)?;
        }
        files.layers.push(next);
        Ok(())
    }

    fn of_child(&self) -> Result<Box<dyn BackingStore>, StoreError> {
        let top = self.new_layer()?;
        let mut files = self.files_mut();
        let mut layers = std::mem::take(&mut files.layers);
        // The parent's own layer, to which it continues to write.
        layers.pop();
        layers.push(top);
        Ok(Box::new(Self {
            folder: self.folder.clone(),
            files: RwLock::new(Files { layers, regions: std::mem::take(&mut files.regions) }),
        }))
    }
}

/// Location of a region in the files, in pages, and the file of each of its pages.
#[derive(Debug)]
struct Extent {
    first: u64,
    pages: u64,
    /// A byte for each page: 0 if it is not stored, else the index of its layer plus one.
    layers: Sparse,
}

impl Extent {
    fn layer(&self, page: u64) -> u8 {
        self.layers.byte(page as usize).load(Ordering::Relaxed)
    }

    fn set_layer(&self, page: u64, layer: u8) {
        self.layers.byte_mut(page as usize).store(layer, Ordering::Relaxed);
    }

    /// Offset of a page in a file, in bytes.
    fn offset(&self, page: u64) -> u64 {
        (self.first + page) * PAGE_BYTES as u64
    }

    fn stored(&self) -> impl Iterator<Item = u64> {
        let pages = self.layers.written().flatten().map(|page| page as u64);
        pages.filter(|&page| self.layer(page) != 0)
    }
}

#[derive(Debug)]
struct Files {
    /// The last one is written to, and nobody else has it.
    layers: Vec<Layer>,
    regions: Box<[Option<Extent>]>,
}

impl Files {
    fn extent(&self, id: PageId) -> Result<&Extent, StoreError> {
        match self.regions.get(id.region as usize) {
            Some(Some(extent)) if id.page < extent.pages => Ok(extent),
            _ => Err(StoreError::Missing(id)),
        }
    }

    /// The layer that is written to, and its number.
    fn top(&self) -> Result<(&Layer, u8), StoreError> {
        let top = self.layers.last();
        // There are at most `MOST_LAYERS`.
        top.map(|layer| (layer, self.layers.len() as u8))
            .ok_or(StoreError::Other("a store of the parent is used in a forked child"))
    }

    /// Writes pages, in order, to a layer.
    fn write(&self, layer: &Layer, mut pages: &[OutgoingPage<'_>]) -> Result<(), StoreError> {
        while let Some(page) = pages.first() {
            let (run, others) = pages.split_at(run_pages(pages.iter().map(|page| (page.id, 0))));
            // All pages of a region, in order.
            let last = page.id.page + run.len() as u64 - 1;
            let extent = self.extent(PageId { page: last, ..page.id })?;
            layer.write(run, extent.offset(page.id.page))?;
            pages = others;
        }
        Ok(())
    }

    /// Copies all pages into `layer`, which replaces all others.
    fn gather(&mut self, layer: Layer) -> Result<(), StoreError> {
        // `O_DIRECT` needs page-aligned buffers.
        let mut memory = vec![0; (CALL_PAGES + 1) * PAGE_BYTES];
        let skip = memory.as_ptr().align_offset(PAGE_BYTES);
        let regions = (0..).zip(&self.regions).filter_map(|(region, extent)| Some((region, extent.as_ref()?)));
        for (region, extent) in regions {
            let mut ids = extent.stored().map(|page| PageId { region, page }).peekable();
            while ids.peek().is_some() {
                let buffers = memory[skip..].chunks_exact_mut(PAGE_BYTES);
                let pages = buffers.zip(ids.by_ref().take(CALL_PAGES));
                let mut incoming: Vec<_> = pages.map(|(bytes, id)| IncomingPage { id, bytes }).collect();
                self.fetch(&mut incoming)?;
                let outgoing = incoming.iter().map(|page| OutgoingPage { id: page.id, bytes: page.bytes });
                self.write(&layer, &outgoing.collect::<Vec<_>>())?;
            }
        }
        for extent in self.regions.iter().flatten() {
            extent.stored().for_each(|page| extent.set_layer(page, 1));
        }
        self.layers = vec![layer];
        Ok(())
    }

    fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
        let layer = |id: PageId| self.extent(id).map_or(0, |extent| extent.layer(id.page));
        let mut rest = pages;
        while let Some(page) = rest.first() {
            let id = page.id;
            let offset = self.extent(id)?.offset(id.page);
            let file = usize::from(layer(id)).checked_sub(1);
            let file = file.and_then(|index| self.layers.get(index));
            let count = run_pages(rest.iter().map(|page| (page.id, layer(page.id))));
            let (run, others) = rest.split_at_mut(count);
            file.ok_or(StoreError::Missing(id))?.read(run, offset)?;
            rest = others;
        }
        Ok(())
    }
}

/// Number of pages, from the first on, that are consecutive in one layer.
fn run_pages(places: impl Iterator<Item = (PageId, u8)>) -> usize {
    let mut next = None;
    places
        .take(CALL_PAGES)
        .take_while(|&(id, layer)| {
            let follows = next.is_none_or(|next| (id, layer) == next);
            let page = id.page + 1;
            next = Some((PageId { page, ..id }, layer));
            follows
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_testing::children::{in_child, lower_limit};

    fn outgoing(page: u64, bytes: &[u8]) -> OutgoingPage<'_> {
        let id = PageId { region: 7, page };
        OutgoingPage { id, bytes }
    }

    #[test]
    fn a_file_longer_than_the_process_may_make_is_refused_before_it_is_written() {
        in_child("long", || {
            lower_limit(rustix::process::Resource::Fsize, 1 << 20);
            let store = DiskStore::new("/tmp").unwrap();
            assert_eq!(store.add_region(0, 256), Ok(()));
            let error = store.add_region(1, 1).unwrap_err();
            assert!(error.to_string().contains("ulimit -f"), "{error}");
            store.remove_region(0);
            assert_eq!(store.add_region(1, 256), Ok(()));
        });
    }

    #[test]
    fn regions_lie_side_by_side_and_gaps_are_used_again() {
        let store = DiskStore::new("/tmp").unwrap();
        for region in 0..3 {
            store.add_region(region, 10).unwrap();
        }
        store.remove_region(1);
        store.add_region(7, 10).unwrap();
        store.add_region(8, 11).unwrap();
        let first = |region| store.files().extent(PageId { region, page: 0 }).unwrap().first;
        assert_eq!([0, 7, 2, 8].map(first), [0, 10, 20, 30]);
        for id in [PageId { region: 7, page: 10 }, PageId { region: 1, page: 0 }, PageId { region: u32::MAX, page: 0 }]
        {
            assert_eq!(store.files().extent(id).unwrap_err(), StoreError::Missing(id));
        }
        let missing = store.store(&[outgoing(10, &[0; 4096])]).unwrap_err();
        assert!(missing.to_string().contains("page 10 of region 7"), "{missing}");
    }

    #[test]
    fn what_is_sealed_stays_for_the_child_and_is_gathered_at_the_last_layer() {
        let store = DiskStore::new("/tmp").unwrap();
        store.add_region(7, 1 << 20).unwrap();
        let mut memory = vec![0_u8; 3 * PAGE_BYTES];
        let skip = memory.as_ptr().align_offset(PAGE_BYTES);
        let page = |number: u64| number * 1000 % 100_003;
        for round in 0..450_u64 {
            memory[skip..skip + PAGE_BYTES].fill(round as u8);
            let bytes = &memory[skip..skip + PAGE_BYTES];
            store.store(&[outgoing(page(round), bytes)]).unwrap();
            store.store(&[outgoing(5, bytes)]).unwrap();
            store.seal().unwrap();
            // Nothing was written since.
            store.seal().unwrap();
            assert!(store.files().layers.len() <= MOST_LAYERS);
        }
        store.discard(7, page(3), 1);
        let check = |store: &dyn BackingStore, memory: &mut [u8], number: u64, expected: u64| {
            let (id, bytes) = (PageId { region: 7, page: number }, &mut memory[skip..][..PAGE_BYTES]);
            store.fetch(&mut [IncomingPage { id, bytes }]).unwrap();
            assert!(memory[skip..][..PAGE_BYTES].iter().all(|&it| it == expected as u8));
        };
        for round in (0..450).filter(|&round| round != 3) {
            check(&store, &mut memory, page(round), round);
        }
        check(&store, &mut memory, 5, 449);
        let id = PageId { region: 7, page: page(3) };
        let bytes = &mut memory[skip..][..PAGE_BYTES];
        let missing = store.fetch(&mut [IncomingPage { id, bytes }]);
        assert_eq!(missing, Err(StoreError::Missing(id)));
        let child = store.of_child().unwrap();
        check(&*child, &mut memory, 5, 449);
        assert!(store.seal().is_err());
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(DiskStore::new("/nowhere/at/all").is_err());
    }
}
