//! A page of global memory that is read is the page written last; once nothing is under way the directory names the pages that are
//! stored and no others, all members go by one map, and no frame is lost or used twice.

use std::collections::{BTreeMap, BTreeSet};

use mapwire_gms::{Gms, PageName};
use mapwire_wire::NodeId;

use super::delivery::{differs, pattern};
use super::{Violation, expect, violation};
use crate::random::mix;

/// What is known of a page, across all nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Truth {
    /// Newest version that was written.
    pub(crate) version: u32,
    /// Newest version on permanent storage; 0 for none.
    pub(crate) on_disk: u32,
    /// The newest version was stored, and nothing has happened since that may lose it.
    pub(crate) must_be_there: bool,
    /// An operation of the page's owner is under way.
    pub(crate) is_busy: bool,
    /// The newest version that was discarded.
    pub(crate) discarded: u32,
}

/// A page that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read<'a> {
    pub(crate) name: PageName,
    pub(crate) version: u32,
    pub(crate) checksum: u32,
    pub(crate) bytes: &'a [u8],
}

const fn seed(name: PageName, version: u32) -> u64 {
    mix(mix(name.space ^ mix(name.page)) ^ version as u64)
}

/// Writes what a page holds in this version.
pub(crate) fn write(name: PageName, version: u32, into: &mut [u8]) {
    pattern(seed(name, version), 0, into);
}

/// A program's checksum of a page.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(0, |sum, &byte| mix(sum ^ u64::from(byte)));
    sum as u32
}

/// A page that lies somewhere has its bytes.
pub(crate) fn holds(at: NodeId, read: Read<'_>) -> Result<(), Violation> {
    let Read { name, version, .. } = read;
    match differs(seed(name, version), 0, read.bytes) {
        None => Ok(()),
        Some(byte) => {
            Err(violation("pages", format!("{at}: byte {byte} of version {version} of {name:?} is not what was put")))
        }
    }
}

/// A page that was read has the checksum and the bytes that were put. Its own node finds the newest version if that must be there; an
/// older one may only have come back as the members changed.
pub(crate) fn is_right(at: NodeId, read: Read<'_>, own: Option<&Truth>, has_changes: bool) -> Result<(), Violation> {
    if checksum(read.bytes) != read.checksum {
        let (name, version) = (read.name, read.version);
        let text = format!("{at}: version {version} of {name:?} has another checksum than was put");
        return Err(violation("checksums", text));
    }
    holds(at, read)?;
    let Some(truth) = own else { return Ok(()) };
    let may_be_older = has_changes && !truth.must_be_there;
    expect(read.version == truth.version || (may_be_older && read.version < truth.version), "pages", || {
        format!("{at} reads version {} of {:?}, of which {truth:?}", read.version, read.name)
    })
}

/// A page was not found. Its contents must be on permanent storage, unless it may be lost.
pub(crate) fn may_be_absent(at: NodeId, name: PageName, truth: &Truth) -> Result<(), Violation> {
    expect(!truth.must_be_there, "pages", || format!("{at}: {name:?} is absent, of which {truth:?}"))
}

/// Nothing has landed in a frame that no operation names.
pub(crate) fn is_untouched(at: NodeId, frame: u32, bytes: &[u8]) -> Result<(), Violation> {
    match bytes.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(byte) => Err(violation(
            "frames",
            format!("{at}: byte {byte} of frame {frame} was stored, and no operation names it"),
        )),
    }
}

/// Nodes that live, at rest: maps, directories and frames fit together.
pub(crate) fn fits_together(living: &[&Gms], pool_frames: u32) -> Result<(), Violation> {
    let is_member = |gms: &&&Gms| gms.map().members().contains(gms.config().node);
    let members: Vec<&Gms> = living.iter().filter(is_member).copied().collect();
    one_map(&members)?;
    directory_is_exact(&members)?;
    living.iter().try_for_each(|gms| keeps_frames(gms, living, pool_frames))
}

/// All members go by the same map, which is settled and names exactly them.
fn one_map(members: &[&Gms]) -> Result<(), Violation> {
    let Some(first) = members.first() else { return Ok(()) };
    let wrong = |text| Err(violation("membership", text));
    let named: Vec<NodeId> = first.map().members().iter().collect();
    let there: Vec<NodeId> = members.iter().map(|gms| gms.config().node).collect();
    if named != there {
        return wrong(format!("the map names {named:?}, and members are {there:?}"));
    }
    for gms in members {
        let node = gms.config().node;
        if gms.map() != first.map() {
            return wrong(format!("{node} goes by another map than {}", there[0]));
        }
        if !gms.is_settled() {
            return wrong(format!("{node} is not settled"));
        }
    }
    Ok(())
}

/// Who stores a page, in which version.
type Copies = BTreeMap<PageName, BTreeSet<(NodeId, u32)>>;

/// The directory names exactly the pages that are stored.
fn directory_is_exact(members: &[&Gms]) -> Result<(), Violation> {
    let (mut stored, mut named) = (Copies::new(), Copies::new());
    let mut strange = None;
    for gms in members {
        let node = gms.config().node;
        for (name, version, _) in gms.pages() {
            stored.entry(name).or_default().insert((node, version));
        }
        gms.directory().for_each(|entry| {
            if gms.map().directory_node(entry.name().hash()) != Some(node) {
                strange = Some((node, entry.name()));
            }
            let copies = entry.copies().map(|copy| (copy, entry.version()));
            named.entry(entry.name()).or_default().extend(copies);
        });
    }
    let wrong = |text| Err(violation("page directory", text));
    if let Some((node, name)) = strange {
        return wrong(format!("{node} names {name:?}, which is not its part"));
    }
    let names: BTreeSet<_> = stored.keys().chain(named.keys()).collect();
    for name in names {
        let (is, says) = (stored.get(name), named.get(name));
        if is != says {
            return wrong(format!("{name:?}: stored are {is:?}, named are {says:?}"));
        }
    }
    Ok(())
}

/// Each page lies in a frame of its own, no frame is lost, and peers hold what a node counts as granted to them.
fn keeps_frames(gms: &Gms, living: &[&Gms], pool_frames: u32) -> Result<(), Violation> {
    let node = gms.config().node;
    let frames: BTreeSet<u32> = gms.pages().map(|(_, _, frame)| frame).collect();
    let uses = gms.frame_uses();
    let sum = uses.idle + uses.free + uses.granted + uses.pages + uses.draining;
    let held: usize = living.iter().map(|peer| peer.credit_of(node)).sum();
    let is_right = sum == pool_frames
        && uses.pages as usize == frames.len()
        && frames.len() == gms.pages().count()
        && uses.draining == 0
        && uses.granted as usize == held;
    expect(is_right, "frames", || {
        format!("{node}: of {pool_frames} frames {uses:?}; {} hold pages, peers may fill {held}", frames.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: PageName = PageName { space: 1, page: 2 };

    fn read(version: u32, bytes: &[u8]) -> Read<'_> {
        Read { name: NAME, version, checksum: checksum(bytes), bytes }
    }

    #[test]
    fn a_page_of_other_bytes_of_another_version_or_checksum_is_found() {
        let mut bytes = [0; 4096];
        write(NAME, 3, &mut bytes);
        let truth = Truth { version: 3, must_be_there: true, ..Truth::default() };
        let check = |read, truth: &Truth, deaths| {
            let checked = is_right(NodeId(0), read, Some(truth), deaths);
            checked.err().map(|violation| violation.check)
        };
        assert_eq!(check(read(3, &bytes), &truth, false), None);
        assert_eq!(check(read(2, &bytes), &truth, false), Some("pages"));
        let newer = Truth { version: 4, ..truth };
        assert_eq!(check(read(3, &bytes), &newer, true), Some("pages"));
        let lost = Truth { must_be_there: false, ..newer };
        assert_eq!(check(read(3, &bytes), &lost, true), None);
        assert_eq!(check(read(3, &bytes), &lost, false), Some("pages"));
        let mut damaged = bytes;
        damaged[4095] ^= 1;
        let mut read = read(3, &damaged);
        assert_eq!(check(read, &truth, false), Some("pages"));
        read.checksum = checksum(&bytes);
        assert_eq!(check(read, &truth, false), Some("checksums"));
    }

    #[test]
    fn a_page_that_must_be_there_and_a_frame_that_was_stored_into_are_found() {
        let mut truth = Truth::default();
        assert!(may_be_absent(NodeId(0), NAME, &truth).is_ok());
        truth.must_be_there = true;
        assert!(may_be_absent(NodeId(0), NAME, &truth).is_err());
        assert!(is_untouched(NodeId(0), 1, &[0; 8]).is_ok());
        assert!(is_untouched(NodeId(0), 1, &[0, 0, 1]).is_err());
    }
}
