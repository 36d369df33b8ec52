//! Finds out which backends this computer allows, by protecting a page.

use std::sync::Arc;

use super::{Access, FaultBackend, PageProtection};
use crate::page::PAGE_BYTES;
use crate::views::{MultiView, ViewError, ViewLayout};

/// Takes one page through all states with `backend`, without touching it. For `mapwire doctor`.
///
/// # Errors
/// Why it does not work, and how to fix it.
pub fn probe(backend: FaultBackend) -> Result<(), String> {
    use Access::{None, Read, Write};
    let views = try_views().map_err(|error| error.to_string())?;
    let protection = PageProtection::new(backend, views).map_err(|error| error.to_string())?;
    for (from, to) in [(None, Read), (Read, Write), (Write, Read), (Read, None), (None, Write)] {
        protection.set(0, 0, 1, from, to).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// One page at the first free one of a few addresses.
fn try_views() -> Result<Arc<MultiView>, ViewError> {
    let mut last = ViewError::Empty { bytes: 0, views: 0 };
    for base in [0x2f00_0000_0000, 0x2e00_0000_0000, 0x0040_0000_0000, 0x0020_0000_0000] {
        match ViewLayout::new(base, PAGE_BYTES, 1).and_then(|layout| MultiView::new("probe", layout)) {
            Ok(views) => return Ok(Arc::new(views)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
