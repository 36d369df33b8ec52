//! Pages, runs of pages, frames and processes: the units of translation.
//!
//! None has arithmetic operators: an address becomes a page through [`Page::containing`], a transfer becomes pages through
//! [`PageRange::covering`], and only a table turns a page into a frame.

use core::fmt;

/// Bytes in a page. Transfers are translated page by page.
pub const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
/// log₂ of [`PAGE_BYTES`].
pub const PAGE_SHIFT: u32 = 12;
/// Bits of a virtual address that tables and maps cover. Includes user space of x86-64 and of AArch64 with four-level tables.
pub const ADDRESS_BITS: u32 = 48;
/// One more than the largest page number that tables and maps cover.
pub const PAGE_NUMBER_END: u64 = 1 << (ADDRESS_BITS - PAGE_SHIFT);

/// A virtual page number: the address without its offset in the page.
///
/// ```
/// use mapwire_translation::Page;
/// let page = Page::containing(0x1234_5678);
/// assert_eq!(page, Page(0x1_2345));
/// assert_eq!(page.address(), 0x1234_5000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Page(pub u64);

impl Page {
    /// The page that contains the byte at `address`.
    #[inline]
    pub const fn containing(address: u64) -> Self {
        Page(address >> PAGE_SHIFT)
    }

    /// Address of the page's first byte. Page numbers of 2⁵² and more name no address; their high bits are lost.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0 << PAGE_SHIFT
    }

    /// The page that follows; for the largest number, itself.
    #[inline]
    pub const fn next(self) -> Self {
        Page(self.0.saturating_add(1))
    }

    /// Whether the page lies in the 48-bit space that maps and tables cover. Others are never pinned.
    #[inline]
    pub const fn in_address_space(self) -> bool {
        self.0 < PAGE_NUMBER_END
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {:#x}", self.0)
    }
}

/// The NIC's DMA name of a pinned page. Its meaning is up to the pinner: a slot of registered buffers, a physical page number, a simulated
/// frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u64);

impl Frame {
    /// The frame of every page that is not pinned (UTLB §4.2). DMA maps it to a page that nobody reads, so a wrong address from a user
    /// process needs no check and harms nobody.
    pub const GARBAGE: Frame = Frame(u64::MAX);

    /// Whether this is [`Frame::GARBAGE`].
    #[inline]
    pub const fn is_garbage(self) -> bool {
        self.0 == Self::GARBAGE.0
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_garbage() { f.write_str("the garbage frame") } else { write!(f, "frame {:#x}", self.0) }
    }
}

/// A process by the number of its command queue on the NIC, never a number that the process chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u16);

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.0)
    }
}

/// `count` consecutive pages from `first` on; may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageRange {
    pub first: Page,
    /// Number of pages.
    pub count: u64,
}

/// Why memory cannot be covered by any table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RangeError {
    /// The bytes end past the 48-bit address space, or past the end of 64 bits.
    #[error(
        "{length_bytes} bytes from address {address:#x} end outside the 48-bit address space; pass memory of this process"
    )]
    BytesOutside {
        /// First address.
        address: u64,
        length_bytes: u64,
    },
    /// The pages end past the 48-bit address space.
    #[error("{count} pages from page {first:#x} end outside the 48-bit address space; pass pages of this process")]
    PagesOutside {
        /// Number of the first page.
        first: u64,
        /// Number of pages.
        count: u64,
    },
}

impl PageRange {
    pub const EMPTY: PageRange = PageRange { first: Page(0), count: 0 };

    /// The pages that overlap the `length_bytes` bytes at `address`; empty for a length of 0.
    ///
    /// ```
    /// use mapwire_translation::{Page, PageRange};
    /// let range = PageRange::covering(0x1fff, 2)?;
    /// assert_eq!(range, PageRange { first: Page(1), count: 2 });
    /// assert!(PageRange::covering(u64::MAX, 2).is_err());
    /// # Ok::<(), mapwire_translation::RangeError>(())
    /// ```
    #[inline]
    pub const fn covering(address: u64, length_bytes: u64) -> Result<Self, RangeError> {
        match address.checked_add(length_bytes) {
            Some(end) if end <= 1 << ADDRESS_BITS => {
                let first = Page::containing(address);
                let count = if length_bytes == 0 { 0 } else { Page::containing(end - 1).0 - first.0 + 1 };
                Ok(PageRange { first, count })
            }
            _ => Err(RangeError::BytesOutside { address, length_bytes }),
        }
    }

    /// The range of one page.
    #[inline]
    pub const fn single(page: Page) -> Self {
        PageRange { first: page, count: 1 }
    }

    /// The page after the last one.
    #[inline]
    pub const fn end(self) -> Page {
        Page(self.first.0.saturating_add(self.count))
    }

    /// Whether the range names no page.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Whether `page` is in the range.
    #[inline]
    pub const fn contains(self, page: Page) -> bool {
        page.0 >= self.first.0 && page.0 - self.first.0 < self.count
    }

    /// The pages before page `number`, and the rest.
    #[inline]
    pub const fn split_at(self, number: u64) -> (Self, Self) {
        let before = number.saturating_sub(self.first.0);
        let before = if before < self.count { before } else { self.count };
        let first = PageRange { count: before, ..self };
        let rest = PageRange { first: first.end(), count: self.count - before };
        (first, rest)
    }

    /// Checks that every page lies in the 48-bit space that maps and tables cover.
    #[inline]
    pub const fn in_address_space(self) -> Result<Self, RangeError> {
        match self.first.0.checked_add(self.count) {
            Some(end) if end <= PAGE_NUMBER_END => Ok(self),
            _ => Err(RangeError::PagesOutside { first: self.first.0, count: self.count }),
        }
    }

    /// The pages, in ascending order.
    #[inline]
    pub fn iter(self) -> PageIter {
        PageIter { next: self.first.0, end: self.end().0 }
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages from {}", self.count, self.first)
    }
}

impl IntoIterator for PageRange {
    type Item = Page;
    type IntoIter = PageIter;

    #[inline]
    fn into_iter(self) -> PageIter {
        self.iter()
    }
}

/// The pages of a [`PageRange`], in ascending order.
#[derive(Clone, Debug)]
pub struct PageIter {
    next: u64,
    end: u64,
}

impl Iterator for PageIter {
    type Item = Page;

    #[inline]
    fn next(&mut self) -> Option<Page> {
        if self.next >= self.end {
            return None;
        }
        let page = Page(self.next);
        self.next += 1;
        Some(page)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.end.saturating_sub(self.next));
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

impl DoubleEndedIterator for PageIter {
    #[inline]
    fn next_back(&mut self) -> Option<Page> {
        if self.next >= self.end {
            return None;
        }
        self.end -= 1;
        Some(Page(self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn a_range_covers_every_page_that_a_byte_touches() {
        for (address, length, first, count) in
            [(0, 1, 0, 1), (4095, 1, 0, 1), (4095, 2, 0, 2), (4096, 4096, 1, 1), (4097, 4096, 1, 2), (8192, 0, 2, 0)]
        {
            let range = PageRange::covering(address, length).unwrap();
            assert_eq!((range.first.0, range.count), (first, count), "address {address}, length {length}");
        }
    }

    #[test]
    fn a_range_may_end_exactly_with_the_address_space() {
        let top = 1u64 << ADDRESS_BITS;
        assert_eq!(PageRange::covering(top - 4096, 4096).unwrap().end(), Page(PAGE_NUMBER_END));
        assert_eq!(
            PageRange::covering(top - 4096, 4097),
            Err(RangeError::BytesOutside { address: top - 4096, length_bytes: 4097 })
        );
        assert!(PageRange::covering(u64::MAX, u64::MAX).is_err());
        assert!(PageRange::covering(u64::MAX, 0).is_err());
    }

    #[test]
    fn an_error_names_the_address_and_the_length() {
        let text = PageRange::covering(u64::MAX, 7).unwrap_err().to_string();
        assert!(text.contains("7 bytes") && text.contains("0xffffffffffffffff"), "{text}");
    }

    #[test]
    fn iteration_yields_each_page_once_and_never_overflows() {
        let pages: Vec<_> = PageRange { first: Page(7), count: 3 }.iter().collect();
        assert_eq!(pages, [Page(7), Page(8), Page(9)]);
        let backward: Vec<_> = PageRange::single(Page(7)).iter().rev().collect();
        assert_eq!(backward, [Page(7)]);
        assert_eq!(PageRange { first: Page(u64::MAX - 1), count: 9 }.iter().count(), 1);
        assert_eq!(PageRange::EMPTY.iter().count(), 0);
    }

    #[test]
    fn a_range_split_at_any_page_gives_two_that_make_it_up() {
        let range = PageRange { first: Page(10), count: 3 };
        for number in 0..20 {
            let (one, two) = range.split_at(number);
            let pages: Vec<_> = one.iter().chain(two).collect();
            assert_eq!(pages, [Page(10), Page(11), Page(12)], "{number}");
            assert!(one.iter().all(|page| page.0 < number) && two.iter().all(|page| page.0 >= number));
        }
    }

    #[test]
    fn a_range_contains_its_pages_and_no_other() {
        let range = PageRange { first: Page(4), count: 2 };
        let inside: Vec<_> = (0..8).filter(|&n| range.contains(Page(n))).collect();
        assert_eq!(inside, [4, 5]);
    }
}
