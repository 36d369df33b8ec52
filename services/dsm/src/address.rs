//! Addresses, minipages, access and protection.

/// Bytes of a page: the unit of protection.
pub const PAGE_BYTES: u64 = 4096;

/// Kind of an access that faulted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// Access that the application has to a minipage in this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protection {
    /// No access: the bytes here are out of date.
    #[default]
    None,
    /// Load: other ranks may hold copies too.
    Read,
    /// Load and store: no other rank holds a copy.
    Write,
}

impl Protection {
    /// Whether an access of this kind succeeds without a fault.
    pub fn allows(self, access: Access) -> bool {
        self >= Protection::from(access)
    }
}

impl From<Access> for Protection {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Protection::Read,
            Access::Write => Protection::Write,
        }
    }
}

/// An address in the shared memory, the same in every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// View through which the application accesses it.
    pub view: u16,
    /// Offset in the segment, in bytes.
    pub offset_bytes: u64,
}

/// The unit of data transfer and of access rights: an allocation, or one of the units of a long one.
///
/// It is either shorter than a page and within one page, or at least a page long and starts on a page boundary; then no other minipage of
/// the same view lies on its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Minipage {
    /// View through which the application accesses it.
    pub view: u16,
    /// Offset in the segment, in bytes; the same in every view and in the privileged view.
    pub offset_bytes: u64,
    /// Length in bytes, at least 1.
    pub length_bytes: u64,
}

impl Minipage {
    /// The page it starts on.
    pub fn first_page(&self) -> u64 {
        self.offset_bytes / PAGE_BYTES
    }

    /// Number of pages that it touches, whose protection in its view is its own.
    pub fn pages(&self) -> u64 {
        (self.offset_bytes % PAGE_BYTES + self.length_bytes).div_ceil(PAGE_BYTES)
    }

    /// Whether it has bytes, all of them within a segment of this size.
    pub(crate) fn is_within(&self, pages: u32, views: u16) -> bool {
        let end = self.offset_bytes.checked_add(self.length_bytes);
        self.view < views && self.length_bytes > 0 && end.is_some_and(|end| end <= u64::from(pages) * PAGE_BYTES)
    }

    /// Whether it lies within a segment of this size and keeps the rules of its shape.
    pub(crate) fn is_well_formed(&self, pages: u32, views: u16) -> bool {
        let within = self.offset_bytes % PAGE_BYTES;
        self.is_within(pages, views)
            && if self.length_bytes >= PAGE_BYTES { within == 0 } else { within + self.length_bytes <= PAGE_BYTES }
    }

    /// A minipage of this length so many views after it, which begins where that of the view before ends. Numbers that are too large stay so.
    pub(crate) fn after(self, views: u16) -> Minipage {
        let distance = self.length_bytes.saturating_mul(views.into());
        let offset_bytes = self.offset_bytes.saturating_add(distance);
        Minipage { view: self.view.saturating_add(views), offset_bytes, ..self }
    }

    /// Its key; meaningful only if it lies within a segment.
    pub fn key(&self) -> Key {
        Key { view: self.view, page: self.first_page() as u32 }
    }
}

/// Identifies a minipage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Key {
    pub view: u16,
    pub page: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minipage(offset_bytes: u64, length_bytes: u64) -> Minipage {
        Minipage { view: 0, offset_bytes, length_bytes }
    }

    #[test]
    fn a_minipage_counts_the_pages_it_touches() {
        assert_eq!(minipage(0, 1).pages(), 1);
        assert_eq!(minipage(4095, 1).pages(), 1);
        assert_eq!(minipage(4096, 4096).pages(), 1);
        assert_eq!(minipage(4096, 4097).pages(), 2);
        assert_eq!(minipage(8192, 1).first_page(), 2);
    }

    #[test]
    fn a_minipage_that_breaks_the_rules_of_its_shape_is_told_apart() {
        assert!(minipage(0, 8192).is_well_formed(2, 1));
        assert!(minipage(4000, 96).is_well_formed(2, 1));
        assert!(!minipage(4000, 97).is_well_formed(2, 1), "small ones stay within a page");
        assert!(!minipage(16, 4096).is_well_formed(2, 1), "large ones start on a page");
        assert!(!minipage(0, 0).is_well_formed(2, 1));
        assert!(!minipage(0, 8193).is_well_formed(2, 1));
        assert!(!minipage(u64::MAX, 2).is_well_formed(2, 1));
        assert!(!minipage(0, 1).is_well_formed(2, 0));
    }

    #[test]
    fn a_protection_allows_what_it_names_and_less() {
        assert!(Protection::Write.allows(Access::Read));
        assert!(Protection::Write.allows(Access::Write));
        assert!(Protection::Read.allows(Access::Read));
        assert!(!Protection::Read.allows(Access::Write));
        assert!(!Protection::None.allows(Access::Read));
    }
}
