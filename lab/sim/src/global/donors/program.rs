//! What the program of a client does, step by step, and what donors do meanwhile.

use mapwire_gms::{FRAME_BYTES, Gms, Loss, Member, PageWord, Surroundings};
use mapwire_wire::NodeId;

use super::super::{FRAMES_ADDRESS, GLOBAL, PROCESS, Seen};
use super::world::{Failed, World};
use super::{Buggy, CLIENT, DonorShape, Donors, STEP, name_of};
use crate::canary::Canary;
use crate::cluster::{Cluster, Observer, Violation};
use crate::coverage::Coverage;

/// Events besides [`STEP`] and [`super::WAKE`]: what donors do, by the node above.
const DIE: u32 = 2;
const LIE: u32 = 3;
const SHRINK: u32 = 4;
const KINDS: u32 = 8;

/// A donor does something so long after the step that it is drawn with, at most.
const SOON_NS: u64 = 1_000_000;

/// Most pages that are stored or fetched at a time.
const BATCH: u64 = 6;
/// How often a page that came with wrong bytes is looked for at most.
const MOST_ATTEMPTS: u32 = 8;
/// Looks of the keeper at the end, each a while after the one before.
const LAST_LOOKS: u32 = 50;
const LOOK_NS: u64 = 20_000_000;

impl crate::run::Programs for Donors {
    type Seen = Seen;

    fn violation(&self) -> Option<&(u64, Violation)> {
        self.violation.as_ref()
    }

    fn event(&mut self, cluster: &mut Cluster, number: u32) -> bool {
        let node = NodeId((number / KINDS) as u16);
        match number % KINDS {
            STEP if !self.segments.is_ready() => cluster.schedule(cluster.now_ns() + 50_000, STEP),
            STEP => self.step(cluster),
            DIE => {
                cluster.crash(node, self);
                // Two donors of one computer die at once.
                let next = NodeId(1 + node.0 % (self.nodes - 1));
                if self.random.chance(60) {
                    cluster.crash(next, self);
                }
            }
            LIE if cluster.is_alive(node) => self.lie(cluster, node),
            SHRINK if cluster.is_alive(node) => {
                self.seen.shrunk += 1;
                let frames = self.random.below(u64::from(self.shape.pool_frames) + 1) as u32;
                self.call(cluster, node, |gms, now_ns| gms.donate(now_ns, frames));
            }
            _ => {}
        }
        self.is_over
    }

    fn follow_up(&mut self, cluster: &mut Cluster) {
        if let Err(text) = self.segments.enter(cluster) {
            self.broke(cluster.now_ns(), "global memory", text);
        }
        for node in (1..self.nodes).map(NodeId) {
            while self.gms(cluster, node).is_some_and(Gms::has_outcomes) {
                self.call(cluster, node, |gms, _| gms.poll_outcome());
            }
        }
    }

    fn rest(&mut self, _cluster: &mut Cluster) {}

    fn finish(self, coverage: &mut Coverage) -> Seen {
        self.seen.cover(coverage);
        Seen { crashed: self.seen.died, ..Seen::default() }
    }
}

impl Donors {
    /// A donor changes the pages that it has, and says what is not so from here on.
    fn lie(&mut self, cluster: &mut Cluster, node: NodeId) {
        if self.liars.insert(node) {
            self.seen.lied += 1;
            cluster.parts(node).0.call(PROCESS, GLOBAL, Buggy::begin_lies);
            self.fail(node);
        }
        let frames: Vec<u32> = self.gms(cluster, node).into_iter().flat_map(Gms::pages).map(|page| page.2).collect();
        let (_, memory) = cluster.parts(node);
        for &frame in &frames {
            // Another of its pages, or a byte that is not as it was.
            let from = *self.random.pick(&frames);
            let address = |frame: u32| FRAMES_ADDRESS + u64::from(frame) * FRAME_BYTES;
            let mut bytes = [0; FRAME_BYTES as usize];
            memory.read(PROCESS.0, address(from), &mut bytes);
            bytes[17] ^= u8::from(from == frame);
            memory.write(PROCESS.0, address(frame), &bytes);
        }
        let after_ns = 1 + self.random.below(5_000_000);
        cluster.schedule(cluster.now_ns() + after_ns, u32::from(node.0) * KINDS + LIE);
    }

    /// Donors do something soon: each that is to die or lie does at some step.
    fn draw_donors(&mut self, cluster: &mut Cluster) {
        let DonorShape { die, lie, steps, .. } = self.shape;
        for (kind, times) in [(DIE, die), (LIE, lie), (SHRINK, self.nodes)] {
            if self.random.below(steps.into()) < times.into() {
                let node = 1 + self.random.below(u64::from(self.nodes) - 1) as u32;
                cluster.schedule(cluster.now_ns() + self.random.below(SOON_NS), node * KINDS + kind);
            }
        }
    }

    /// The program does something, and goes on some time later.
    fn step(&mut self, cluster: &mut Cluster) {
        let Some(own) = self.own.take() else { return };
        self.left = self.left.saturating_sub(1);
        self.draw_donors(cluster);
        let is_last = self.left == 0;
        let chosen = self.random.below(100);
        let first = self.random.below(self.shape.pages);
        let last = (first + self.random.within(1, BATCH)).min(self.shape.pages);
        let is_skipped = self.skipped.contains(&(self.shape.steps - 1 - self.left));
        let world = World::new(&own, cluster, self);
        match chosen {
            _ if is_skipped && !is_last => {}
            _ if is_last => world.end(),
            0..=29 => (first..last).for_each(|id| world.write_page(id)),
            30..=59 => world.evict(first..last),
            60..=84 => world.read_pages(first..last),
            85..=89 => world.discard(first..last),
            _ => world.look_after(),
        }
        self.own = Some(own);
        self.is_over = is_last;
        let after_ns = self.random.spread(1_000, self.shape.pace_ns);
        cluster.schedule(cluster.now_ns() + after_ns, STEP);
    }
}

impl World<'_> {
    fn page<R>(&self, id: u64, look: impl FnOnce(&mut super::Page) -> R) -> R {
        self.with(|_, donors| look(&mut donors.pages[id as usize]))
    }

    fn broke(&self, text: String) {
        self.with(|cluster, donors| donors.broke(cluster.now_ns(), "pages", text));
    }

    fn write_page(&self, id: u64) {
        let is_out = self.page(id, |page| page.is_stored && !page.is_in_ram);
        if is_out {
            self.read_pages(id..id + 1);
        }
        self.page(id, |page| (page.written, page.is_dirty, page.is_in_ram) = (page.written + 1, true, true));
    }

    /// Pages leave RAM: those that the store does not have, or has lost, are stored first.
    fn evict(&self, ids: core::ops::Range<u64>) {
        let (mut out, mut offered) = (Vec::new(), Vec::new());
        for id in ids.filter(|&id| self.page(id, |page| page.is_in_ram)) {
            let is_dirty = self.page(id, |page| page.is_dirty);
            let is_held = self.client().holds(self, id) || self.has(Canary::Unheld);
            if is_dirty || !is_held {
                self.with(|_, donors| donors.seen.stored_again += u64::from(!is_dirty));
                out.push((id, self.expected(id)));
                continue;
            }
            let is_whole = self.with(|_, donors| donors.failed.difference(&donors.healed).next().is_none());
            self.page(id, |page| (page.is_in_ram, page.may_be_lost) = (false, page.may_be_lost && !is_whole));
            if self.client().wants(self, id) {
                offered.push((id, self.expected(id)));
            }
        }
        fn borrowed(pages: &[(u64, Vec<u8>)]) -> Vec<(u64, &[u8])> {
            pages.iter().map(|(id, bytes)| (*id, &bytes[..])).collect()
        }
        let failures = self.with(|_, donors| donors.failures);
        if !out.is_empty() && self.client().store(self, &borrowed(&out)).is_ok() {
            // Both donors may have failed since they said that they have the page, or lied as they said so.
            let may_be_lost = self.with(|cluster, donors| {
                let liars = donors.liars.iter().filter(|&&node| cluster.is_alive(node));
                donors.shape.copies > 1 && liars.count() > 1 || donors.failures > failures && donors.may_lose()
            });
            for (id, _) in out {
                let written = self.page(id, |page| page.written);
                self.page(id, |page| {
                    *page = super::Page { written, may_be_lost, is_stored: true, ..super::Page::default() }
                });
            }
        }
        if !offered.is_empty() {
            self.client().offer(self, &borrowed(&offered));
        }
    }

    /// Pages come back into RAM, as a pager brings them there: by its checksum it sees whether bytes are right.
    fn read_pages(&self, ids: core::ops::Range<u64>) {
        let is_out = |id: &u64| self.page(*id, |page| page.is_stored && !page.is_in_ram);
        let mut buffers: Vec<_> = ids.filter(is_out).map(|id| (id, vec![0xee; FRAME_BYTES as usize])).collect();
        let mut pages: Vec<_> = buffers.iter_mut().map(|(id, bytes)| (*id, &mut bytes[..])).collect();
        let words: Vec<PageWord> = pages.iter().map(|(id, _)| self.word(*id)).collect();
        let fetched = self.client().fetch(self, &mut pages);
        let are_many = pages.len() > 1;
        for ((id, bytes), word) in pages.into_iter().zip(words) {
            let mut fetched = fetched;
            if fetched.is_err() && are_many {
                fetched = self.client().fetch(self, &mut [(id, &mut *bytes)]);
            }
            self.come(id, bytes, word, fetched);
        }
    }

    /// Looks at a page that was fetched, of which the word was `before`, and for another copy while it has wrong bytes.
    fn come(&self, id: u64, bytes: &mut [u8], before: PageWord, mut fetched: Result<(), Failed>) {
        let expected = self.expected(id);
        for attempt in 0.. {
            if self.with(|_, donors| donors.is_stopped()) {
                return;
            }
            match fetched {
                Ok(()) if *bytes == expected[..] => {
                    self.with(|_, donors| {
                        donors.seen.fetched += 1;
                        donors.seen.elsewhere += u64::from(attempt > 0);
                    });
                    return self.page(id, |page| page.is_in_ram = true);
                }
                Err(failed) => return self.lose(id, failed),
                Ok(()) => {}
            }
            let is_near = before.known().and_then(|known| known.place).is_some_and(|place| self.is_near(place));
            let is_explained = is_near || before == PageWord::SALVAGED;
            if !is_explained && self.with(|_, donors| donors.liars.is_empty()) {
                return self
                    .broke(format!("page {id} comes with wrong bytes that nobody has changed, from {before:?}"));
            }
            if attempt > MOST_ATTEMPTS {
                return self.broke(format!("page {id} comes with wrong bytes again and again"));
            }
            fetched = self.client().fetch_other(self, id, bytes, attempt);
        }
    }

    /// A page is lost: the program starts it anew.
    fn lose(&self, id: u64, failed: Failed) {
        if !self.page(id, |page| page.may_be_lost) {
            let word = self.word(id);
            self.broke(format!("page {id} is lost ({failed:?}), of which {word:?}, though no two donors have failed"));
        }
        self.with(|_, donors| donors.seen.lost += u64::from(failed == Failed::Lost(Loss::Gone)));
        self.discard(id..id + 1);
    }

    fn discard(&self, ids: core::ops::Range<u64>) {
        self.client().forget_all(self, &ids);
        for id in ids {
            self.forget_on_disk(id);
            self.page(id, |page| *page = super::Page { written: page.written, ..super::Page::default() });
        }
    }

    /// What a keeper's thread does from time to time.
    fn look_after(&self) {
        if self.session().is_none() {
            return;
        }
        let failed = self.with(|_, donors| donors.failed.clone());
        let mut living = self.with(|_, donors| donors.living);
        let is_safe = self.has(Canary::Unsecured) || self.client().tend(self, self, &mut living);
        let members: Vec<NodeId> =
            self.call(|gms, _| gms.map().members().iter().collect::<Vec<_>>()).unwrap_or_default();
        self.with(|_, donors| {
            donors.living = living;
            if is_safe {
                // Those that are known to be dead.
                let healed = failed.iter().filter(|node| !donors.liars.contains(node) && !members.contains(node));
                donors.healed.extend(healed);
            }
        });
        if members == [CLIENT] {
            self.client().forget_donors(self);
        } else if !self.has(Canary::UntoldDiscard) {
            self.client().tell_discards(self, self);
        }
    }

    /// All is read once more, and donors keep nothing that is not wanted.
    fn end(&self) {
        let pages = self.with(|_, donors| donors.shape.pages);
        self.read_pages(0..pages);
        for _ in 0..LAST_LOOKS {
            self.look_after();
            let until_ns = Member::now_ns(self) + LOOK_NS;
            while Member::now_ns(self) < until_ns && !self.wait(LOOK_NS, |_| false) {}
            let is_idle = self.call(|gms, _| gms.under_way() == 0 && !gms.has_outcomes());
            let is_told = self.discards(|discards| discards.is_empty());
            if self.with(|_, donors| donors.is_stopped()) || is_idle == Some(true) && is_told {
                break;
            }
        }
        let known: Vec<_> = (0..pages).filter_map(|id| Some((name_of(id), self.word(id).known()?.version))).collect();
        let unwanted = self.with(|cluster, donors| {
            let others = (1..donors.nodes).map(NodeId).filter(|_| donors.failed.is_empty());
            let mut kept = others.flat_map(|node| donors.gms(cluster, node).into_iter().flat_map(Gms::pages));
            kept.find(|(name, version, _)| !known.contains(&(*name, *version)))
        });
        if let Some((name, version, _)) = unwanted.filter(|_| self.with(|_, donors| !donors.is_stopped())) {
            self.broke(format!("a donor keeps version {version} of {name:?}, which nobody wants"));
        }
    }
}
