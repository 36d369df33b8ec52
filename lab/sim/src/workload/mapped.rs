//! Exports that importers may map in part: of those pages are pinned before the part and behind it.

use mapwire_node::ExportRequest;
use mapwire_translation::PAGE_BYTES;
use mapwire_vmmc::Importers;
use mapwire_wire::{Key, MappedPart, Rights};

use super::{Callers, Mapped};
use crate::checks::bounds::MAPPED_ADDRESS;
use crate::cluster::{Cluster, Observer};
use crate::random::Random;

/// Pages before the part, of the part, and behind it, at most.
const MOST_PAGES: u64 = 12;

impl Callers {
    /// A program exports memory that may be mapped in part, or takes it back.
    pub(super) fn export_mapped(&mut self, cluster: &mut Cluster, program: usize, random: &mut Random) {
        let at = self.programs[program].at;
        let (node, memory) = cluster.parts(at.node);
        if let Some(mapped) = self.programs[program].mapped.take() {
            if let Err(error) = node.unexport(at.process, mapped.id) {
                self.broke(
                    cluster.now_ns(),
                    "bounds",
                    format!("{}: {} cannot be revoked: {error}", at.node, mapped.id),
                );
            }
            return self.count(cluster.now_ns(), program, "unexport");
        }
        let mut bytes = || random.within(1, MOST_PAGES) * PAGE_BYTES as u64;
        let (before, part, behind) = (bytes(), bytes(), bytes());
        let (length, part) = (before + part + behind, MappedPart { offset: before, bytes: part });
        let mut key = [2; 16];
        key[..8].copy_from_slice(&random.next().to_le_bytes());
        let request = ExportRequest {
            name: "mapped".into(),
            key: Key(key),
            address: MAPPED_ADDRESS,
            length,
            rights: Rights::ALL,
            importers: Importers::Job,
            direct: Some(part),
            pins_late: false,
        };
        let refused = memory.refused_pins();
        match node.export(at.process, memory, request) {
            Ok(id) => {
                // A page behind the part may have been unpinned to make room for one before it, and pinned again.
                cluster.settle(at.node, self);
                self.programs[program].mapped = Some(Mapped { id, length, part });
                self.count(cluster.now_ns(), program, "export");
            }
            Err(error) => self.lacks_pages(cluster, at.node, refused, &error),
        }
    }
}
