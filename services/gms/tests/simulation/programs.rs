//! What the programs of the nodes do, and what they make of the outcomes.

use mapwire_gms::{GetPage, Outcome, PageName, PutPage, SpaceId};
use mapwire_wire::NodeId;

use crate::cluster::{Cluster, Operation, Packet, checksum, contents, is_own, own_page};

impl Cluster {
    /// A program does something, or a node joins, leaves or dies.
    pub(crate) fn act(&mut self) {
        let node = NodeId(self.random.below(u64::from(self.shape.nodes)) as u16);
        let at = usize::from(node.0);
        if self.hosts[at].is_dead {
            return;
        }
        match self.random.below(100) {
            0..=39 => self.put(node),
            40..=79 => self.get(node),
            80..=84 => self.discard(node),
            85..=92 if self.random.chance(40) => self.donate(node.0),
            93..=95 if self.shape.moves => self.join_or_leave(node),
            96 if self.crashes < self.shape.crashes => self.crash(node),
            _ => {}
        }
        self.drain(node);
    }

    fn join_or_leave(&mut self, node: NodeId) {
        let host = &mut self.hosts[usize::from(node.0)];
        if !host.has_joined {
            host.has_joined = host.gms.join(self.now_ns).is_ok();
        } else if self.random.chance(20) && host.gms.map().members().contains(node) {
            host.is_leaving |= host.gms.leave(self.now_ns).is_ok();
        }
    }

    /// The node is dead at once. What it has sent arrives, or is lost from some point on; then its peers hear of it.
    fn crash(&mut self, node: NodeId) {
        self.crashes += 1;
        self.seen.crashed += 1;
        self.hosts[usize::from(node.0)].is_dead = true;
        for peer in (0..self.shape.nodes).map(NodeId).filter(|&peer| peer != node) {
            let packets = self.network.entry((node, peer)).or_default();
            let left = self.random.below(packets.len() as u64 + 1) as usize;
            packets.truncate(left);
            packets.push_back(Packet::Gone(node));
        }
        // Pages may be lost with it.
        self.truths.values_mut().for_each(|truth| truth.must_be_there = false);
    }

    /// A page that belongs to a node, or one that all share.
    fn choose(&mut self, node: NodeId) -> PageName {
        let shared = SpaceId::File { device: 1, inode: 2, generation: 3 };
        if self.random.chance(30) {
            PageName::new(&shared, self.random.below(self.shape.shared_pages))
        } else {
            own_page(node, self.random.below(self.shape.pages))
        }
    }

    fn put(&mut self, node: NodeId) {
        let name = self.choose(node);
        let is_own = is_own(node, name);
        let truth = self.truths.entry(name).or_default();
        if is_own && truth.is_busy {
            return;
        }
        let host = &mut self.hosts[usize::from(node.0)];
        let Some(frame) = host.spare.pop() else {
            return;
        };
        // A private page is written before it is put; a shared one is as it is on disk.
        let version = if is_own { truth.version + 1 } else { 1 };
        let on_disk = !is_own || self.random.chance(self.shape.on_disk_percent);
        let contents = contents(name, version);
        host.memory[frame as usize] = contents;
        let tag = self.tag + 1;
        let put = PutPage {
            name,
            version,
            frame,
            tag,
            checksum: checksum(contents),
            age_ms: self.random.below(100) as u32,
            on_disk,
            copies: 1 + self.random.below(2) as u8,
            to: None,
        };
        if host.gms.put(self.now_ns, put).is_err() {
            host.spare.push(frame);
            return;
        }
        let operation = Operation::Put { name, frame, version, on_disk };
        host.operations.insert(tag, operation);
        truth.version = version;
        truth.is_busy |= is_own;
        truth.must_be_there = false;
        self.tag = tag;
    }

    fn get(&mut self, node: NodeId) {
        let name = self.choose(node);
        self.get_page(node, name, None);
    }

    pub(crate) fn get_page(&mut self, node: NodeId, name: PageName, keep: Option<bool>) {
        let is_own = is_own(node, name);
        let truth = self.truths.entry(name).or_default();
        let host = &mut self.hosts[usize::from(node.0)];
        if is_own && truth.is_busy {
            return;
        }
        let Some(frame) = host.spare.pop() else {
            return;
        };
        let keep = keep.unwrap_or_else(|| self.random.chance(50));
        let tag = self.tag + 1;
        let get = GetPage { name, frame, tag, keep };
        if host.gms.get(self.now_ns, get).is_err() {
            host.spare.push(frame);
            return;
        }
        host.operations.insert(tag, Operation::Get { name, frame, keep });
        truth.is_busy |= is_own;
        self.tag = tag;
    }

    fn discard(&mut self, node: NodeId) {
        let name = self.choose(node);
        let truth = self.truths.entry(name).or_default();
        if is_own(node, name) && self.hosts[usize::from(node.0)].gms.discard(self.now_ns, name, truth.version).is_ok() {
            truth.must_be_there = false;
            truth.discarded = truth.version;
        }
    }

    /// A program hears how an operation ended.
    pub(crate) fn hear(&mut self, node: NodeId, outcome: Outcome) {
        let at = usize::from(node.0);
        let (tag, read) = match outcome {
            Outcome::Page { tag, frame, version, checksum, .. } => {
                self.seen.pages += 1;
                (tag, Some((frame, version, checksum)))
            }
            Outcome::Here { tag, frame, version, checksum, .. } => {
                self.seen.here += 1;
                (tag, Some((frame, version, checksum)))
            }
            Outcome::Absent { tag } => (tag, None),
            Outcome::Stored { tag, copies, .. } => {
                self.seen.stored += 1;
                self.seen.stored_twice += u64::from(copies == 2);
                (tag, None)
            }
            Outcome::Refused { tag, .. } => {
                self.seen.refused += 1;
                (tag, None)
            }
            Outcome::Dropped { tag } => {
                self.seen.dropped += 1;
                (tag, None)
            }
            Outcome::Shrunk { serving } => {
                self.seen.shrunk += 1;
                assert!(serving <= self.shape.pool_frames);
                return;
            }
            Outcome::Joined => {
                self.seen.joined += 1;
                return;
            }
            Outcome::Left => {
                self.seen.left += 1;
                self.hosts[at].is_leaving = false;
                self.hosts[at].has_joined = false;
                assert_eq!(self.hosts[at].gms.pages().count(), 0);
                return;
            }
        };
        let host = &mut self.hosts[at];
        let operation = host.operations.remove(&tag).expect("it ended once already");
        match operation {
            Operation::Get { name, frame, keep } => {
                host.spare.push(frame);
                let truth = self.truths.get_mut(&name).unwrap();
                truth.is_busy &= !is_own(node, name);
                if let Some((place, version, sum)) = read {
                    let is = host.memory[place as usize];
                    assert_eq!(is, contents(name, version), "{node} reads other bytes");
                    assert_eq!(sum, checksum(is));
                    if is_own(node, name) {
                        // A directory node that dies may take the last word about a discarded version with it.
                        let is_old = version < truth.version && self.crashes == 0;
                        assert!(!is_old, "{node} reads version {version} of {name:?}");
                        assert!(version <= truth.version);
                    }
                    if !keep {
                        truth.must_be_there = false;
                    }
                    if place != frame {
                        let _ = host.gms.copied(self.now_ns, tag);
                        self.drain(node);
                    }
                } else {
                    self.seen.absent += 1;
                    assert!(!truth.must_be_there, "{node}: {name:?} was stored and is absent");
                }
            }
            Operation::Put { name, frame, version, on_disk } => {
                host.spare.push(frame);
                // The frame is used for something else at once.
                host.memory[frame as usize] = u64::MAX;
                if is_own(node, name) {
                    let truth = self.truths.get_mut(&name).unwrap();
                    truth.is_busy = false;
                    let is_stored = matches!(outcome, Outcome::Stored { .. });
                    let is_safe = self.shape.crashes == 0 && !on_disk && self.shape.directory_bytes > 2048;
                    truth.must_be_there = is_stored && is_safe && truth.discarded < version;
                }
            }
        }
    }

    /// Every owner reads its pages.
    pub(crate) fn read_all(&mut self) {
        for node in (0..self.shape.nodes).map(NodeId) {
            if self.hosts[usize::from(node.0)].is_dead {
                continue;
            }
            for page in 0..self.shape.pages {
                self.get_page(node, own_page(node, page), Some(true));
                self.drain(node);
                self.deliver_all();
            }
        }
    }
}
