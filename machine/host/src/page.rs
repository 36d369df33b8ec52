//! Pages and frames of this computer.
//!
//! mapwire's page is 4096 bytes. [`check_page_size`] refuses a kernel with larger pages (some aarch64 kernels), since protections could
//! not be set for each page.

pub use mapwire_translation::{Frame, PAGE_BYTES, PAGE_SHIFT, Page};

/// The kernel's page size differs from mapwire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this kernel's pages are of {found} bytes, mapwire needs {PAGE_BYTES}: \
     boot a kernel configured with 4 KiB pages"
)]
pub struct PageSizeError {
    /// The kernel's page size, in bytes.
    pub found: usize,
}

/// Checks that the kernel's pages are of [`PAGE_BYTES`].
///
/// # Errors
/// [`PageSizeError`] with the kernel's page size, if it differs.
pub fn check_page_size() -> Result<(), PageSizeError> {
    let found = rustix::param::page_size();
    if found == PAGE_BYTES { Ok(()) } else { Err(PageSizeError { found }) }
}

/// `bytes` rounded up to whole pages; `None` on overflow.
pub fn round_to_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_up_to_whole_pages() {
        assert_eq!(round_to_pages(0), Some(0));
        assert_eq!(round_to_pages(1), Some(4096));
        assert_eq!(round_to_pages(4096), Some(4096));
        assert_eq!(round_to_pages(4097), Some(8192));
        assert_eq!(round_to_pages(usize::MAX), None);
    }

    #[test]
    fn this_kernel_has_pages_of_the_right_size() {
        assert_eq!(check_page_size(), Ok(()));
    }
}
