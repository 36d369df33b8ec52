//! What the programs do, and what they make of the outcomes.

use mapwire_gms::{FRAME_BYTES, GetPage, Gms, MapVersion, Outcome, PageName, PutPage, SpaceId};
use mapwire_wire::NodeId;

use super::{Operation, Programs, is_own, own_page};
use crate::checks::global_memory::{self as check, Read};
use crate::cluster::{Cluster, Observer};
use crate::random::Random;

impl Programs {
    /// The program of a node does something.
    pub(super) fn act(&mut self, cluster: &mut Cluster, node: NodeId, seed: u64) {
        let mut random = Random::new(seed);
        // One that is no member can do nothing else.
        let is_outside = !self.programs[usize::from(node.0)].has_joined && random.chance(20);
        if random.chance(self.shape.moves_percent) || is_outside {
            return self.join_or_leave(cluster, node, &mut random);
        }
        match random.below(100) {
            0..=46 => self.put(cluster, node, &mut random),
            47..=92 => {
                // Mostly one that should be there.
                let names = [(); 3].map(|()| self.choose(node, &mut random));
                let is_there = |name: &&PageName| self.truths.get(name).is_some_and(|truth| truth.must_be_there);
                let name = *names.iter().find(is_there).unwrap_or(&names[0]);
                let keep = random.chance(50);
                self.get(cluster, node, name, keep);
            }
            93..=96 => self.discard(cluster, node, &mut random),
            _ => self.donate(cluster, node, &mut random),
        }
    }

    pub(super) fn donate(&mut self, cluster: &mut Cluster, node: NodeId, random: &mut Random) {
        let most = u64::from(self.shape.pool_frames);
        let least = if random.chance(70) { most / 2 } else { 0 };
        let frames = random.within(least, most) as u32;
        // A node that leaves donates nothing.
        let _ = self.call(cluster, node, |gms, now_ns| gms.donate(now_ns, frames));
    }

    fn join_or_leave(&mut self, cluster: &mut Cluster, node: NodeId, random: &mut Random) {
        let at = usize::from(node.0);
        if !self.programs[at].has_joined {
            let joined = self.call(cluster, node, |gms, now_ns| gms.join(now_ns));
            self.programs[at].has_joined = joined.is_some_and(|joined| joined.is_ok());
            return;
        }
        let is_member = self.gms(cluster, node).is_some_and(|gms| gms.map().members().contains(node));
        if is_member && random.chance(40) {
            // The outcome may be there at once.
            self.programs[at].is_leaving = true;
            let left = self.call(cluster, node, |gms, now_ns| gms.leave(now_ns));
            if left.is_none_or(|left| left.is_err()) {
                self.programs[at].is_leaving = false;
            }
        }
    }

    /// A page that belongs to a node, or one that all share.
    fn choose(&self, node: NodeId, random: &mut Random) -> PageName {
        let shared = SpaceId::File { device: 1, inode: 2, generation: 3 };
        if random.chance(15) {
            PageName::new(&shared, random.below(self.shape.shared_pages))
        } else {
            own_page(node, random.below(self.shape.pages))
        }
    }

    /// Takes a spare frame: nothing has landed there.
    fn take_frame(&mut self, cluster: &mut Cluster, node: NodeId) -> Option<u32> {
        let frame = self.programs[usize::from(node.0)].spare.pop()?;
        let bytes = self.read(cluster, node, frame);
        let checked = check::is_untouched(node, frame, &bytes);
        self.note(cluster.now_ns(), checked);
        Some(frame)
    }

    /// An operation uses its frame no more.
    fn spare(&mut self, cluster: &mut Cluster, node: NodeId, frame: u32) {
        self.write(cluster, node, frame, &[0; FRAME_BYTES as usize]);
        self.programs[usize::from(node.0)].spare.push(frame);
    }

    fn put(&mut self, cluster: &mut Cluster, node: NodeId, random: &mut Random) {
        let name = self.choose(node, random);
        let is_own = is_own(node, name);
        let truth = self.truths.entry(name).or_default();
        if is_own && truth.is_busy {
            return;
        }
        // A page of one's own is written before it is put; a shared one is as it is on disk.
        let version = if is_own { truth.version + 1 } else { 1 };
        let on_disk = !is_own || random.chance(self.shape.on_disk_percent);
        let Some(frame) = self.take_frame(cluster, node) else { return };
        let mut bytes = [0; FRAME_BYTES as usize];
        check::write(name, version, &mut bytes);
        self.write(cluster, node, frame, &bytes);
        self.tag += 1;
        let tag = self.tag;
        let put = PutPage {
            name,
            version,
            frame,
            tag,
            checksum: check::checksum(&bytes),
            age_ms: random.below(100) as u32,
            on_disk,
            copies: 1 + random.below(2) as u8,
            to: None,
        };
        let begun = self.call(cluster, node, |gms, now_ns| gms.put(now_ns, put));
        if begun.is_none_or(|begun| begun.is_err()) {
            return self.spare(cluster, node, frame);
        }
        let operation = Operation::Put { name, frame, version, on_disk };
        self.begin(node, tag, operation);
        let truth = self.truths.entry(name).or_default();
        truth.version = version;
        truth.is_busy |= is_own;
        truth.must_be_there = false;
        if on_disk {
            truth.on_disk = version;
        }
    }

    pub(super) fn get(&mut self, cluster: &mut Cluster, node: NodeId, name: PageName, keep: bool) {
        let is_own = is_own(node, name);
        if is_own && self.truths.entry(name).or_default().is_busy {
            return;
        }
        let Some(frame) = self.take_frame(cluster, node) else { return };
        self.tag += 1;
        let tag = self.tag;
        let get = GetPage { name, frame, tag, keep };
        let begun = self.call(cluster, node, |gms, now_ns| gms.get(now_ns, get));
        if begun.is_none_or(|begun| begun.is_err()) {
            return self.spare(cluster, node, frame);
        }
        self.begin(node, tag, Operation::Get { name, frame, keep });
        self.truths.entry(name).or_default().is_busy |= is_own;
    }

    fn begin(&mut self, node: NodeId, tag: u64, operation: Operation) {
        let program = &mut self.programs[usize::from(node.0)];
        program.operations.insert(tag, operation);
    }

    fn discard(&mut self, cluster: &mut Cluster, node: NodeId, random: &mut Random) {
        let name = own_page(node, random.below(self.shape.pages));
        let version = self.truths.entry(name).or_default().version;
        let begun = self.call(cluster, node, |gms, now_ns| gms.discard(now_ns, name, version));
        if begun.is_some_and(|begun| begun.is_ok()) {
            let truth = self.truths.entry(name).or_default();
            truth.must_be_there = false;
            truth.discarded = version;
        }
    }

    /// A program hears how an operation ended.
    pub(super) fn hear(&mut self, cluster: &mut Cluster, node: NodeId, outcome: Outcome) {
        let at = usize::from(node.0);
        let seen = &mut self.seen;
        let (tag, found) = match outcome {
            Outcome::Page { tag, frame, version, checksum, .. } => {
                seen.pages += 1;
                (tag, Some((frame, version, checksum)))
            }
            Outcome::Here { tag, frame, version, checksum, .. } => {
                seen.here += 1;
                (tag, Some((frame, version, checksum)))
            }
            Outcome::Absent { tag } => (tag, None),
            Outcome::Stored { tag, copies, .. } => {
                seen.stored += 1;
                seen.stored_twice += u64::from(copies == 2);
                (tag, None)
            }
            Outcome::Refused { tag, .. } => {
                seen.refused += 1;
                (tag, None)
            }
            Outcome::Dropped { tag } => {
                seen.dropped += 1;
                (tag, None)
            }
            Outcome::Shrunk { .. } => return seen.shrunk += 1,
            Outcome::Joined => return seen.joined += 1,
            Outcome::Left => {
                seen.left += 1;
                self.programs[at].is_leaving = false;
                self.programs[at].has_joined = false;
                let stored = self.gms(cluster, node).map_or(0, |gms| gms.pages().count());
                if stored > 0 {
                    self.unexplained(cluster.now_ns(), format!("{node} left with {stored} pages"));
                }
                return;
            }
        };
        let Some(operation) = self.programs[at].operations.remove(&tag) else {
            let text = format!("{node}: {outcome:?} of an operation that is not under way");
            return self.unexplained(cluster.now_ns(), text);
        };
        match (operation, found) {
            (Operation::Get { name, frame, keep }, Some((from, version, checksum))) => {
                let copy = Operation::Copy { name, frame, keep, from, version, checksum };
                self.begin(node, tag, copy);
                if from == frame {
                    return self.copy(cluster, node, tag);
                }
                // The program takes its time.
                let number = self.first_copy + self.copies.len() as u32;
                self.copies.push((node, tag));
                let after_ns = self.random.spread(100, 100_000);
                cluster.schedule(cluster.now_ns() + after_ns, number);
            }
            (Operation::Get { name, frame, .. }, None) => self.miss(cluster, node, name, frame),
            (Operation::Put { name, frame, version, on_disk }, _) => {
                self.spare(cluster, node, frame);
                let is_stored = matches!(outcome, Outcome::Stored { .. });
                if is_own(node, name) {
                    self.put_ended(cluster, name, version, is_stored && !on_disk);
                }
            }
            (Operation::Copy { .. }, _) => {
                self.unexplained(cluster.now_ns(), format!("{node}: {outcome:?} comes twice"));
            }
        }
    }

    /// A page of one's own is stored and may not be dropped, or is not.
    fn put_ended(&mut self, cluster: &Cluster, name: PageName, version: u32, is_kept: bool) {
        let has_room = self.shape.directory_bytes > 2048;
        // Who stored it may have died meanwhile; and a copy is given up while the directory still names that of a dead node.
        let holders = self.nodes().filter(|&node| {
            let mut pages = self.gms(cluster, node).into_iter().flat_map(Gms::pages);
            pages.any(|page| (page.0, page.1) == (name, version))
        });
        let lives = holders.map(|node| self.is_alive(node));
        let is_resident = self.seen.crashed == 0 || lives.min() == Some(true);
        let truth = self.truths.entry(name).or_default();
        truth.is_busy = false;
        truth.must_be_there = is_kept && has_room && is_resident && truth.discarded < version;
    }

    /// A page is not in global memory.
    fn miss(&mut self, cluster: &mut Cluster, node: NodeId, name: PageName, frame: u32) {
        self.seen.absent += 1;
        self.spare(cluster, node, frame);
        let truth = self.truths.entry(name).or_default();
        truth.is_busy &= !is_own(node, name);
        let is_on_disk = truth.version > 0 && truth.on_disk == truth.version;
        self.seen.from_disk += u64::from(is_on_disk);
        let checked = check::may_be_absent(node, name, truth);
        self.note(cluster.now_ns(), checked);
    }

    /// A program copies a page that it was told of.
    pub(super) fn copy(&mut self, cluster: &mut Cluster, node: NodeId, tag: u64) {
        let at = usize::from(node.0);
        let Some(Operation::Copy { name, frame, keep, from, version, checksum }) =
            self.programs[at].operations.remove(&tag)
        else {
            return;
        };
        let is_changed = |gms: &Gms| gms.map().version() != MapVersion::FIRST;
        let mut nodes = self.nodes();
        let has_changes = self.seen.crashed > 0 || nodes.any(|node| self.gms(cluster, node).is_some_and(is_changed));
        let bytes = self.read(cluster, node, from);
        let read = Read { name, version, checksum, bytes: &bytes };
        let truth = self.truths.entry(name).or_default();
        truth.is_busy &= !is_own(node, name);
        let own = is_own(node, name).then_some(&*truth);
        let checked = check::is_right(node, read, own, has_changes);
        if !keep {
            truth.must_be_there = false;
        }
        self.note(cluster.now_ns(), checked);
        if from != frame {
            let copied = self.call(cluster, node, |gms, now_ns| gms.copied(now_ns, tag));
            if let Some(Err(error)) = copied {
                self.unexplained(cluster.now_ns(), format!("{node}: {error}"));
            }
        }
        self.spare(cluster, node, frame);
    }
}
