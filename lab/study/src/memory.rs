//! What a NIC's memory holds under a design, structure by structure (dynamic handle lookup §V.A, Figure 3): the firmware itself is
//! given the processes, exports, imports and pages, and asked.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use mapwire_nic::{Config, Delivery, Export, Import, Nic, NicError};
use mapwire_translation::table::TABLE_ENTRIES;
use mapwire_translation::{
    AnyDesign, CacheError, DesignConfig, Frame, HostError, HostSide, PAGE_BYTES, Page, PageRange, PinRules, Process,
    SimulatedPinner, TranslationDesign,
};
use mapwire_wire::{ExportId, Key, NodeId, ProcessId, Rights};

use crate::config::Configuration;
use crate::decode::Pages;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Nodes of the cluster, this one included; at least 1.
    pub nodes: u16,
    pub processes: u16,
    /// Pages that each process has pinned, one behind the other. A table that holds fewer is full.
    pub pages: u64,
    pub exports: u32,
    pub imports: u32,
}

impl Default for Load {
    /// The cluster of dynamic handle lookup §V, 4 nodes of 2 processors: 2 processes of 8,192 pages, 64 exports and 64 imports each.
    fn default() -> Self {
        Load { nodes: 4, processes: 2, pages: 8192, exports: 64, imports: 64 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Structure {
    pub name: &'static str,
    /// Whether addresses or handles are looked up in it: translations, exports and imports.
    pub is_lookup: bool,
    pub bytes: u64,
}

/// A load that the firmware does not take.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("{0}")]
    Cache(#[from] CacheError),
    #[error("the NIC does not take {nodes} nodes, {processes} processes, {exports} exports and {imports} imports each: {cause}",
        nodes = .load.nodes, processes = .load.processes, exports = .load.exports, imports = .load.imports)]
    Nic { load: Load, cause: NicError },
}

/// More than any NIC has: nothing is refused for it.
const MEMORY_BYTES: u64 = 1 << 48;
/// Pages that are pinned at a time.
const AT_A_TIME: u64 = 64;
/// Where the memory of each process begins.
const FIRST_PAGE: Page = Page(1 << 20);

/// The structures of a NIC that serves that load, those of the design first.
///
/// ```
/// use mapwire_study::memory::{Load, nic_memory};
/// let structures = nic_memory(&mapwire_settings::parse_design("dynamic-handle,entries=8K")?, Load::default())?;
/// assert_eq!(structures[0].name, "VMH cache");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn nic_memory(design: &DesignConfig, load: Load) -> Result<Vec<Structure>, MemoryError> {
    let design = AnyDesign::new(design)?;
    let nic = filled(design, load).map_err(|cause| MemoryError::Nic { load, cause })?;
    let of_design = nic.translation().nic_memory().count();
    let rows = nic.memory().rows.into_iter().enumerate();
    Ok(rows
        .map(|(at, row)| Structure {
            name: row.what,
            is_lookup: at < of_design || matches!(row.what, "export table" | "import table"),
            bytes: row.bytes,
        })
        .collect())
}

fn filled(design: AnyDesign, load: Load) -> Result<Nic<AnyDesign>, NicError> {
    let key = Key([1; 16]);
    let config = Config {
        node: NodeId(0),
        reply_keys: vec![key; load.nodes.into()],
        memory_bytes: MEMORY_BYTES,
        max_payload_bytes: mapwire_wire::MAX_PAYLOAD_BYTES,
        delivery: Delivery::Lossless,
    };
    let mut nic = Nic::new(config, design)?;
    for process in (0..load.processes).map(ProcessId) {
        nic.open_process(process)?;
        let mut host = HostSide::new(Process(process.0), PinRules::default(), nic.translation());
        let mut pinner = SimulatedPinner::default();
        pin(&mut nic, &mut host, &mut pinner, load.pages)?;
        for number in 0..load.exports {
            // Within the pages that are pinned, if there are so many.
            let page = Page(FIRST_PAGE.0 + u64::from(number));
            let exported = host.prepare_receive(&mut nic, &mut pinner, PageRange::single(page));
            fits(exported)?;
            nic.export(Export {
                process,
                key,
                address: page.address(),
                length: PAGE_BYTES as u64,
                rights: Rights::ALL,
                landing: None,
            })?;
        }
        for number in 0..load.imports {
            nic.import(Import {
                process,
                node: NodeId((number % u32::from(load.nodes)) as u16),
                export: ExportId(number),
                key,
                length: PAGE_BYTES as u64,
                rights: Rights::ALL,
                revoked: false,
                refused: Default::default(),
            })?;
        }
    }
    Ok(nic)
}

/// Pins pages of a process as a host does, as many as its table holds.
fn pin(
    nic: &mut Nic<AnyDesign>,
    host: &mut HostSide,
    pinner: &mut SimulatedPinner,
    pages: u64,
) -> Result<(), NicError> {
    let mut done = 0;
    while done < pages {
        let range = PageRange { first: Page(FIRST_PAGE.0 + done), count: AT_A_TIME.min(pages - done) };
        if !fits(host.prepare(nic, pinner, range))? {
            break;
        }
        done += range.count;
    }
    Ok(())
}

/// Whether a table had room.
fn fits(outcome: Result<(), HostError<Infallible, NicError>>) -> Result<bool, NicError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(HostError::Limit(_)) => Ok(false),
        Err(HostError::Nic(error)) => Err(error),
        Err(HostError::Pin(never)) => match never {},
    }
}

/// Most entries of a cache or table that is built to be asked for its bytes.
const MOST_ENTRIES: usize = 1 << 24;

/// What the processes of a node have its NIC translate, as a trace tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    pub pages: BTreeMap<Process, u64>,
    /// Second-level tables that the processes need (UTLB §3.3), by page number / 1024.
    tables: BTreeSet<(Process, u64)>,
}

impl Footprint {
    pub fn of(pages: &Pages) -> Self {
        let mut footprint = Footprint::default();
        for id in 0..pages.len() {
            let (process, page) = pages.name(id as u32);
            *footprint.pages.entry(process).or_default() += 1;
            let table = page.0 / TABLE_ENTRIES as u64;
            footprint.tables.insert((process, table));
        }
        footprint
    }

    /// Bytes of NIC memory that the design takes with all processes open, as it charges a memory budget; with the directories of their
    /// tables, where those are in the NIC. `None` for a design that cannot be built, or not without hundreds of megabytes.
    pub fn nic_bytes(&self, design: &DesignConfig) -> Option<u64> {
        let entries = Configuration::new(*design).entries()?;
        if entries > MOST_ENTRIES {
            return None;
        }
        let mut nic = AnyDesign::new(design).ok()?;
        for process in self.pages.keys() {
            // Each process is there once, so none is open already.
            let _ = nic.open(*process);
        }
        if let DesignConfig::Hierarchical(_) = design {
            for (process, table) in &self.tables {
                // Pages of a trace lie in the address space.
                let _ = nic.install(*process, Page(table * TABLE_ENTRIES as u64), Frame(0));
            }
        }
        Some(nic.nic_memory().map(|(_, bytes)| bytes as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_settings::parse_design;

    fn bytes(design: &str, load: Load) -> (u64, u64) {
        let structures = nic_memory(&parse_design(design).unwrap(), load).unwrap();
        let lookup = structures.iter().filter(|it| it.is_lookup);
        (lookup.map(|it| it.bytes).sum(), structures.iter().map(|it| it.bytes).sum())
    }

    #[test]
    fn tables_for_each_process_grow_with_processes_and_a_shared_cache_does_not() {
        let load = |processes| Load { processes, exports: 0, imports: 0, ..Load::default() };
        let table = bytes("per-process,entries=8K", load(2)).0;
        assert_eq!(bytes("per-process,entries=8K", load(8)).0, 4 * table);
        let cache = bytes("dynamic-handle,entries=8K", load(2)).0;
        assert_eq!(bytes("dynamic-handle,entries=8K", load(8)).0, cache);
    }

    #[test]
    fn what_is_looked_up_is_a_part_of_all() {
        for design in ["hierarchical", "shared-cache", "per-process", "interrupt", "dynamic-handle"] {
            let (lookup, all) = bytes(design, Load::default());
            assert!(0 < lookup && lookup < all, "{design}: {lookup} of {all}");
        }
    }

    #[test]
    fn exports_take_room_in_every_design_that_keeps_their_translations() {
        let of = |design: &str, exports| {
            let load = Load { exports, ..Load::default() };
            let structures = nic_memory(&parse_design(design).unwrap(), load).unwrap();
            let found = structures.iter().find(|it| it.name == "translations of exports");
            found.map(|it| it.bytes)
        };
        assert!(of("interrupt", 4096) > of("interrupt", 0));
        assert_eq!(of("dynamic-handle", 4096), None);
    }

    #[test]
    fn a_load_that_the_nic_does_not_take_is_named() {
        let load = Load { nodes: 0, ..Load::default() };
        let error = nic_memory(&DesignConfig::default(), load).unwrap_err();
        assert!(error.to_string().contains("0 nodes"), "{error}");
    }

    #[test]
    fn footprints_are_of_processes_and_their_tables_take_nic_memory() {
        let mut pages = Pages::default();
        for (process, page) in [(0, 1), (0, 2), (0, 3), (1, 1), (0, 2)] {
            pages.id(Process(process), Page(page));
        }
        let footprint = Footprint::of(&pages);
        assert_eq!(footprint.pages[&Process(0)], 3);
        let bytes = |text: &str| footprint.nic_bytes(&parse_design(text).unwrap()).unwrap();
        // Two tables of 8 bytes an entry, and a list of two processes.
        assert_eq!(bytes("per-process,entries=64"), 2 * 64 * 8 + 2 * 32);
        assert_eq!(bytes("shared-cache,entries=64"), 64 * 16 + 2 * 32);
        assert!(bytes("hierarchical,entries=64") > bytes("shared-cache,entries=64"));
    }
}
