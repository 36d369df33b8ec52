//! Finds out which backends this computer allows, by protecting a page.

use std::sync::Arc;

use super::{Access, FaultBackend, PageProtection};
use crate::errno::Errno;
use crate::mapping::Mapping;
use crate::page::PAGE_BYTES;
use crate::views::{ALIGN_BYTES, MultiView, ViewLayout};

/// Takes one page through all states with `backend`, without touching it. For `mapwire doctor`.
///
/// # Errors
/// Why it does not work, and how to fix it.
pub fn probe(backend: FaultBackend) -> Result<(), String> {
    use Access::{None, Read, Write};
    let views = try_views()?;
    let protection = PageProtection::new(backend, views).map_err(|error| error.to_string())?;
    for (from, to) in [(None, Read), (Read, Write), (Write, Read), (Read, None), (None, Write)] {
        protection.set(0, 0, 1, from, to).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// One page, at an address that is free now. Another thread may map memory there first, so several are tried.
fn try_views() -> Result<Arc<MultiView>, String> {
    let mut views = try_views_once();
    for _ in 1..4 {
        views = views.or_else(|_| try_views_once());
    }
    views
}

fn try_views_once() -> Result<Arc<MultiView>, String> {
    let free = Mapping::sparse(8 * ALIGN_BYTES, None).map_err(|errno| Errno::from(errno).to_string())?;
    let base = free.address().next_multiple_of(ALIGN_BYTES);
    drop(free);
    let views = ViewLayout::new(base, PAGE_BYTES, 1).and_then(|layout| MultiView::new("probe", layout));
    views.map(Arc::new).map_err(|error| error.to_string())
}
