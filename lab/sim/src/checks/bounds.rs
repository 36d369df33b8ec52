//! No byte lands outside an export that stands, or outside the buffer of a fetch under way.

use mapwire_wire::{Endpoint, ExportId, Key, Rights};

use super::allowed::Allowed;
use super::{Violation, violation};
use crate::hardware::memory::FIRST_ADDRESS;

/// Bytes that importers only fetch, at the start of each export.
pub const STATIC_BYTES: u64 = 2048;
/// Where the word lies that importers add to.
pub const WORD_OFFSET: u64 = 2048;
pub const LANES_OFFSET: u64 = 3072;
/// Bytes behind the word that nobody uses: what is forged goes there.
pub const STRIP_OFFSET: u64 = WORD_OFFSET + 8;
/// Importers of an export, each with a lane of its own.
pub const LANES: usize = 8;
/// Where the data of a lane begins, behind its signal word.
pub const LANE_DATA: u64 = 16;
/// Exports that a process may have at a time.
pub const SLOTS: usize = 4;

const SLOT_SPAN: u64 = 0x2_0000;
const BUFFERS: u64 = 2 * SLOTS as u64 * SLOT_SPAN;
/// Bytes between the buffers of two completion words.
pub const BUFFER_SPAN: u64 = 0x8000;

/// Completion words of a process at most.
const WORDS: u64 = 32;

/// Where the memory begins of an export that importers may map in part, and that nobody imports.
pub const MAPPED_ADDRESS: u64 = FIRST_ADDRESS + BUFFERS + WORDS * BUFFER_SPAN;

/// Where the memory of an export may begin: its own, or the one that it is redirected to.
pub const fn slot_address(slot: usize, redirected: bool) -> u64 {
    let number = slot as u64 + if redirected { SLOTS as u64 } else { 0 };
    FIRST_ADDRESS + number * SLOT_SPAN
}

/// Where the buffer of a completion word begins.
pub const fn buffer_address(word: u32) -> u64 {
    FIRST_ADDRESS + BUFFERS + word as u64 * BUFFER_SPAN
}

/// An export, from its start to ever after.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) exporter: Endpoint,
    pub(crate) slot: usize,
    pub(crate) id: ExportId,
    pub(crate) seed: u64,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
    pub(crate) key: Key,
    pub(crate) importers: Allowed,
    /// Until when it could be imported, if that is over.
    pub(crate) until_ns: Option<u64>,
    /// A node has imported it.
    pub(crate) is_granted: bool,
    /// Where it is, or was, redirected to.
    pub(crate) landing: Option<u64>,
    /// It is redirected there now.
    pub(crate) is_redirected: bool,
    /// The program has not revoked it, nor crashed.
    pub(crate) stands: bool,
    /// Additions to its word: submitted, done at the exporter, and the answers.
    pub(crate) adds: crate::checks::atomics::Adds,
}

/// What lies at an address of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// So many bytes from the start of an export, by the workload's number.
    Export(usize, u64),
    /// So many bytes from the start of the buffer of a completion word.
    Buffer(u32, u64),
}

/// Finds what a process has at an address.
pub(crate) fn find(
    at: Endpoint,
    address: u64,
    length: u64,
    current: &[Option<usize>; SLOTS],
    instances: &[Instance],
) -> Result<Spot, Violation> {
    let wrong = |text: String| {
        let Endpoint { node, process } = at;
        let text = format!("{node}, {process}: {length} bytes at {address:#x} were stored {text}");
        Err(violation("bounds", text))
    };
    let Some(from_start) = address.checked_sub(FIRST_ADDRESS) else { return wrong("before all of its memory".into()) };
    if let Some(behind) = from_start.checked_sub(BUFFERS) {
        return Ok(Spot::Buffer((behind / BUFFER_SPAN) as u32, behind % BUFFER_SPAN));
    }
    let number = (from_start / SLOT_SPAN) as usize;
    let found = current[number % SLOTS].map(|instance| (instance, &instances[instance]));
    let Some((number_of, instance)) = found.filter(|(_, instance)| instance.stands) else {
        return wrong("where nothing is exported".into());
    };
    let start = if number < SLOTS { Some(instance.address) } else { instance.landing };
    let offset = start.and_then(|start| address.checked_sub(start));
    match offset {
        Some(offset) if offset + length <= instance.length => Ok(Spot::Export(number_of, offset)),
        _ => wrong(format!("outside {}", instance.id)),
    }
}
