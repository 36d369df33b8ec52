//! Pages of transfers under way, and of exports that stand, are never unpinned; at rest no others are held.

use mapwire_translation::PAGE_BYTES;
use mapwire_wire::Endpoint;

use super::{Violation, expect, violation};

/// What a process at rest holds, whose exports have `used` pages.
pub(crate) fn are_held(at: Endpoint, held: u64, used: u64) -> Result<(), Violation> {
    expect(held == used, "pinned pages", || {
        let Endpoint { node, process } = at;
        format!("{node}, {process} is at rest and holds {held} pages; those of its exports are {used}")
    })
}

/// A page of a process was unpinned while `used` ranges of its memory, by address and length, are in use.
pub(crate) fn unpinned(
    at: Endpoint,
    page: u64,
    used: impl Iterator<Item = (&'static str, u64, u64)>,
) -> Result<(), Violation> {
    let start = page * PAGE_BYTES as u64;
    let end = start + PAGE_BYTES as u64;
    for (what, address, length) in used {
        if address < end && start < address + length {
            let Endpoint { node, process } = at;
            let text = format!(
                "{node}, {process}: the page at {start:#x} was unpinned while {what} at {address:#x}, {length} bytes, uses it"
            );
            return Err(violation("pinned pages", text));
        }
    }
    Ok(())
}
