//! Locates each page in the files of a disk store.

use std::sync::atomic::Ordering;

use crate::layers::{CALL_PAGES, Layer};
use crate::sparse::Sparse;
use crate::store::{IncomingPage, OutgoingPage, PageId, StoreError};
use mapwire_host::page::PAGE_BYTES;

/// Location of a region in the files, in pages, and the file of each of its pages.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) pages: u64,
    /// A byte for each page: 0 if it is not stored, else the index of its layer plus one.
    pub(crate) layers: Sparse,
}

impl Extent {
    pub(crate) fn layer(&self, page: u64) -> u8 {
        self.layers.byte(page as usize).load(Ordering::Relaxed)
    }

    pub(crate) fn set_layer(&self, page: u64, layer: u8) {
        self.layers.byte_mut(page as usize).store(layer, Ordering::Relaxed);
    }

    /// Offset of a page in a file, in bytes.
    pub(crate) fn offset(&self, page: u64) -> u64 {
        (self.first + page) * PAGE_BYTES as u64
    }

    pub(crate) fn stored(&self) -> impl Iterator<Item = u64> {
        let pages = self.layers.written().flatten().map(|page| page as u64);
        pages.filter(|&page| self.layer(page) != 0)
    }
}

#[derive(Debug)]
pub(crate) struct Files {
    /// The last one is written to, and nobody else has it.
    pub(crate) layers: Vec<Layer>,
    pub(crate) regions: Box<[Option<Extent>]>,
}

impl Files {
    pub(crate) fn extent(&self, id: PageId) -> Result<&Extent, StoreError> {
        match self.regions.get(id.region as usize) {
            Some(Some(extent)) if id.page < extent.pages => Ok(extent),
            _ => Err(StoreError::Missing(id)),
        }
    }

    /// The layer that is written to, and its number.
    pub(crate) fn top(&self) -> Result<(&Layer, u8), StoreError> {
        let top = self.layers.last();
        // There are at most `MOST_LAYERS`.
        top.map(|layer| (layer, self.layers.len() as u8))
            .ok_or(StoreError::Other("a store of the parent is used in a forked child"))
    }

    /// Copies all pages into `layer`, which replaces all others.
    pub(crate) fn gather(&mut self, layer: Layer) -> Result<(), StoreError> {
        // `O_DIRECT` needs page-aligned buffers.
        let mut memory = vec![0; (CALL_PAGES + 1) * PAGE_BYTES];
        let skip = memory.as_ptr().align_offset(PAGE_BYTES);
        let regions = || self.regions.iter().enumerate();
        for (region, extent) in regions().filter_map(|(region, it)| Some((region, it.as_ref()?))) {
            let id = |page| PageId { region: region as u32, page };
            let mut pages = extent.stored().map(id).peekable();
            while pages.peek().is_some() {
                let ids: Vec<_> = pages.by_ref().take(CALL_PAGES).collect();
                let blocks = || ids.iter().copied();
                let buffers = memory[skip..].chunks_exact_mut(PAGE_BYTES);
                let mut incoming: Vec<_> =
                    blocks().zip(buffers).map(|(id, bytes)| IncomingPage { id, bytes }).collect();
                self.fetch(&mut incoming)?;
                let buffers = memory[skip..].chunks_exact(PAGE_BYTES);
                let outgoing: Vec<_> = blocks().zip(buffers).map(|(id, bytes)| OutgoingPage { id, bytes }).collect();
                let mut rest = &outgoing[..];
                while let Some(page) = rest.first() {
                    let count = run_pages(rest.iter().map(|page| (page.id, 0)));
                    layer.write(&rest[..count], extent.offset(page.id.page))?;
                    rest = &rest[count..];
                }
            }
        }
        for extent in self.regions.iter().flatten() {
            for page in extent.stored() {
                extent.set_layer(page, 1);
            }
        }
        self.layers = vec![layer];
        Ok(())
    }

    pub(crate) fn fetch(&self, pages: &mut [IncomingPage<'_>]) -> Result<(), StoreError> {
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
pub(crate) fn run_pages(places: impl Iterator<Item = (PageId, u8)>) -> usize {
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
