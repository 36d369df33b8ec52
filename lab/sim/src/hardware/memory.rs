//! The memory of a node: frames, the pages of its processes, and who is pinned where.
//!
//! A page that is not pinned may lie anywhere: as it is unpinned it moves to another frame at once, and its former frame is filled
//! with [`POISON`]. What a network interface reads or writes by a stale translation is noticed so. Pages of one byte all over take no
//! memory.

use mapwire_nic::{Dma, Piece};
use mapwire_translation::{Frame, PAGE_BYTES, PageRange, PinPages, Process};
use mapwire_vmmc::service::{Change, Region};
use mapwire_wire::SignalOp;
use thiserror::Error;

use crate::canary::Canary;

/// What fills a frame that nobody owns.
pub(crate) const POISON: u8 = 0xdd;

/// The first page of every process.
const FIRST_PAGE: u64 = 0x100;
/// The first address of every process's memory.
pub const FIRST_ADDRESS: u64 = FIRST_PAGE * PAGE_BYTES as u64;

const NO_FRAME: u32 = u32::MAX;

/// The pinner refused, as a fault rule wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the simulated host pins no page now")]
pub struct PinRefused;

/// What a frame holds: one byte all over, which takes no memory, until something else is written there.
#[derive(Debug)]
struct Contents {
    fill: u8,
    bytes: Option<Box<[u8; PAGE_BYTES]>>,
}

impl Contents {
    fn of(fill: u8) -> Self {
        Self { fill, bytes: None }
    }

    fn write(&mut self, within: usize, bytes: &[u8]) {
        if self.bytes.is_none() && bytes.iter().all(|byte| *byte == self.fill) {
            return;
        }
        let page = self.bytes.get_or_insert_with(|| Box::new([self.fill; PAGE_BYTES]));
        page[within..within + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, within: usize, into: &mut [u8]) {
        match &self.bytes {
            Some(page) => into.copy_from_slice(&page[within..within + into.len()]),
            None => into.fill(self.fill),
        }
    }
}

#[derive(Debug)]
struct PageFrame {
    contents: Contents,
    owner: Option<(u16, u64)>,
    is_pinned: bool,
}

/// What was wrong with an access of the network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadAccess(pub String);

/// What pins and their opposites have cost, and what was refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PinCosts {
    /// Pages pinned and unpinned since this was last taken.
    pub(crate) pages: u64,
    /// Calls since this was last taken.
    pub(crate) calls: u64,
}

/// The memory of a node.
#[derive(Debug, Default)]
pub struct Memory {
    frames: Vec<PageFrame>,
    free: Vec<u32>,
    /// Frames of the pages of each process, from [`FIRST_PAGE`] on.
    tables: Vec<Vec<u32>>,
    costs: PinCosts,
    /// Pin calls to refuse from now on, one of so many, and how many more are carried out before the next.
    refusals: u32,
    refused_of: u32,
    until_refusal: u32,
    /// Calls that were refused, and those that were carried out after that.
    refused: u64,
    healed: u64,
    /// A bug: what is refused counts as done.
    pub(crate) hides_refusals: bool,
    /// Refused calls since this was last taken.
    newly_refused: u64,
    /// Pages that follow each other often lie apart.
    is_scattered: bool,
    /// Pages that were unpinned since this was last taken.
    unpinned: Vec<(u16, u64)>,
}

impl Memory {
    pub(crate) fn new(processes: u16) -> Self {
        Self { tables: vec![Vec::new(); usize::from(processes)], refused_of: 1, ..Self::default() }
    }

    /// As [`new`](Self::new), but of pages that follow each other few have frames that do.
    pub(crate) fn scattered(processes: u16) -> Self {
        Self { is_scattered: true, ..Self::new(processes) }
    }

    fn claim(&mut self, process: u16, page: u64) -> u32 {
        let owner = Some((process, page));
        if let Some(frame) = self.free.pop() {
            self.frames[frame as usize].owner = owner;
            return frame;
        }
        if self.is_scattered && page.is_multiple_of(4) {
            // Its frame is that of the next page, then.
            let spare = self.new_frame(POISON, None);
            self.free.push(spare);
        }
        self.new_frame(0, owner)
    }

    fn new_frame(&mut self, fill: u8, owner: Option<(u16, u64)>) -> u32 {
        self.frames.push(PageFrame { contents: Contents::of(fill), owner, is_pinned: false });
        self.frames.len() as u32 - 1
    }

    /// The frame of a page, which gets one if it has none.
    fn frame_of(&mut self, process: u16, page: u64) -> u32 {
        let index = (page - FIRST_PAGE) as usize;
        let table = &mut self.tables[usize::from(process)];
        if table.len() <= index {
            table.resize(index + 1, NO_FRAME);
        }
        if table[index] != NO_FRAME {
            return table[index];
        }
        let frame = self.claim(process, page);
        self.frames[frame as usize].contents = Contents::of(0);
        self.tables[usize::from(process)][index] = frame;
        frame
    }

    /// Writes as a program does.
    pub fn write(&mut self, process: u16, address: u64, bytes: &[u8]) {
        let (mut address, mut rest) = (address, bytes);
        while !rest.is_empty() {
            let within = (address % PAGE_BYTES as u64) as usize;
            let length = rest.len().min(PAGE_BYTES - within);
            let frame = self.frame_of(process, address / PAGE_BYTES as u64);
            let (now, later) = rest.split_at(length);
            self.frames[frame as usize].contents.write(within, now);
            (address, rest) = (address + length as u64, later);
        }
    }

    /// Reads as a program does.
    /// The parts of a service's page that differ from its copy, by offset and length. Its memory begins at [`FIRST_ADDRESS`].
    pub(crate) fn changes(&mut self, process: u16, region: Region, copy: u64) -> Vec<(u64, u64)> {
        let [mut page, mut before] = [(); 2].map(|()| vec![0; region.bytes as usize]);
        self.read(process, FIRST_ADDRESS + region.offset, &mut page);
        self.read(process, FIRST_ADDRESS + copy, &mut before);
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let differs = (0..).zip(page.iter().zip(&before)).filter(|(_, (new, old))| new != old);
        for (at, _) in differs {
            match parts.last_mut() {
                Some((start, length)) if *start + *length == at => *length += 1,
                _ => parts.push((at, 1)),
            }
        }
        parts
    }

    /// Changes the memory of a service, which begins at [`FIRST_ADDRESS`].
    pub(crate) fn change(&mut self, process: u16, change: Change) {
        let read = |memory: &mut Self, offset| {
            let mut bytes = vec![0; PAGE_BYTES];
            memory.read(process, FIRST_ADDRESS + offset, &mut bytes);
            bytes
        };
        match change {
            Change::Copy { from, to } => {
                let bytes = read(self, from);
                self.write(process, FIRST_ADDRESS + to, &bytes);
            }
            Change::Merge { page, copy, fetched } => {
                let [mut mine, before, theirs] = [page, copy, fetched].map(|offset| read(self, offset));
                let unchanged =
                    mine.iter_mut().zip(&before).zip(&theirs).filter(|((mine, before), _)| *mine == *before);
                unchanged.for_each(|((mine, _), theirs)| *mine = *theirs);
                self.write(process, FIRST_ADDRESS + page, &mine);
                self.write(process, FIRST_ADDRESS + copy, &theirs);
            }
        }
    }

    pub fn read(&mut self, process: u16, address: u64, into: &mut [u8]) {
        let (mut address, mut rest) = (address, into);
        while !rest.is_empty() {
            let within = (address % PAGE_BYTES as u64) as usize;
            let length = rest.len().min(PAGE_BYTES - within);
            let frame = self.frame_of(process, address / PAGE_BYTES as u64);
            let (now, later) = rest.split_at_mut(length);
            self.frames[frame as usize].contents.read(within, now);
            (address, rest) = (address + length as u64, later);
        }
    }

    /// The parts of a piece by frame: frame, first byte, bytes.
    fn parts(piece: Piece) -> impl Iterator<Item = (u64, usize, usize)> {
        let (mut at, end) = (piece.offset as usize, (piece.offset + piece.length) as usize);
        core::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let within = at % PAGE_BYTES;
            let length = (end - at).min(PAGE_BYTES - within);
            let frame = piece.frame.0.wrapping_add((at / PAGE_BYTES) as u64);
            at += length;
            Some((frame, within, length))
        })
    }

    /// The frame, if the network interface may use it for the process.
    fn pinned(&mut self, process: u16, frame: u64) -> Result<&mut PageFrame, BadAccess> {
        let found = self.frames.get_mut(frame as usize);
        match found {
            Some(found) if found.is_pinned && found.owner.is_some_and(|of| of.0 == process) => Ok(found),
            Some(found) => Err(BadAccess(format!(
                "frame {frame} was used for process {process}; it belongs to {:?} and is {}",
                found.owner,
                if found.is_pinned { "pinned" } else { "not pinned" }
            ))),
            None => Err(BadAccess(format!("there is no frame {frame}"))),
        }
    }

    /// Reads as the network interface does: appends the bytes of a piece.
    pub(crate) fn gather(&mut self, process: u16, piece: Piece, into: &mut Vec<u8>) -> Result<(), BadAccess> {
        if piece.frame.is_garbage() {
            into.resize(into.len() + piece.length as usize, POISON);
            return Ok(());
        }
        for (frame, within, length) in Self::parts(piece) {
            let contents = &self.pinned(process, frame)?.contents;
            match &contents.bytes {
                Some(page) => into.extend_from_slice(&page[within..within + length]),
                None => into.resize(into.len() + length, contents.fill),
            }
        }
        Ok(())
    }

    /// Writes as the network interface does.
    pub(crate) fn scatter(&mut self, process: u16, piece: Piece, bytes: &[u8]) -> Result<(), BadAccess> {
        if piece.frame.is_garbage() {
            return Ok(());
        }
        let mut rest = bytes;
        for (frame, within, length) in Self::parts(piece) {
            let frame = self.pinned(process, frame)?;
            let (now, later) = rest.split_at(length);
            frame.contents.write(within, now);
            rest = later;
        }
        Ok(())
    }

    /// The word in which a piece of up to eight bytes lies, as the network interface reads it.
    fn word(&mut self, process: u16, piece: Piece) -> Result<u64, BadAccess> {
        let mut bytes = Vec::with_capacity(8);
        self.gather(process, piece, &mut bytes)?;
        bytes.resize(8, 0);
        Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// Carries out a move of the network interface: stores bytes of a packet, then writes its signal, then updates the word that it names.
    /// Gives what that held.
    pub(crate) fn carry_out(&mut self, payload: &[u8], dma: &Dma, canary: Option<Canary>) -> Result<u64, BadAccess> {
        let process = dma.process.0;
        let bytes = payload.get(dma.at as usize..).and_then(|rest| rest.get(..dma.piece.length as usize));
        let outside = || BadAccess(format!("a move of {dma:?} reads outside its packet"));
        self.scatter(process, dma.piece, bytes.ok_or_else(outside)?)?;
        if let Some(write) = dma.signal
            && canary != Some(Canary::LostSignal)
        {
            let old = self.word(process, write.piece)?;
            let new = match write.op {
                SignalOp::Set => write.value,
                SignalOp::Add => old.wrapping_add(write.value),
                SignalOp::Or => old | write.value,
            };
            self.scatter(process, write.piece, &new.to_le_bytes())?;
        }
        let Some(update) = dma.update else { return Ok(0) };
        let old = self.word(process, update.piece)?;
        let mut new = update.atomic.result(old);
        if canary == Some(Canary::AtomicTwice) && old % 4 == 3 {
            new = update.atomic.result(new);
        }
        self.scatter(process, update.piece, &new.to_le_bytes()[..update.piece.length as usize])?;
        Ok(old)
    }

    /// Where in the process's memory the first byte of a piece lies; `None` for the garbage frame.
    pub(crate) fn address_of(&self, piece: Piece) -> Option<u64> {
        let frame = piece.frame.0.checked_add(u64::from(piece.offset) / PAGE_BYTES as u64)?;
        let (_, page) = self.frames.get(frame as usize)?.owner?;
        Some(page * PAGE_BYTES as u64 + u64::from(piece.offset) % PAGE_BYTES as u64)
    }

    /// The pinner refuses so many calls from now on: one of `every`.
    pub fn refuse_pins(&mut self, calls: u32, every: u32) {
        (self.refusals, self.refused_of) = (calls, every.max(1));
        self.until_refusal = self.refused_of - 1;
    }

    /// Calls that the pinner has refused.
    pub fn refused_pins(&self) -> u64 {
        self.refused
    }

    /// Calls that it has carried out after it had refused some.
    pub fn healed_pins(&self) -> u64 {
        self.healed
    }

    pub(crate) fn take_refused(&mut self) -> u64 {
        core::mem::take(&mut self.newly_refused)
    }

    pub(crate) fn take_costs(&mut self) -> PinCosts {
        core::mem::take(&mut self.costs)
    }

    pub(crate) fn take_unpinned(&mut self) -> Option<(u16, u64)> {
        self.unpinned.pop()
    }

    pub fn pinned_pages(&self) -> usize {
        self.frames.iter().filter(|frame| frame.is_pinned).count()
    }
}

impl Memory {
    /// Whether the pinner refuses the call that is made now.
    fn refuses(&mut self) -> bool {
        if self.refusals == 0 {
            return false;
        }
        if self.until_refusal > 0 {
            self.until_refusal -= 1;
            return false;
        }
        self.until_refusal = self.refused_of - 1;
        self.refusals -= 1;
        self.refused += 1;
        self.newly_refused += 1;
        true
    }
}

impl PinPages for Memory {
    type Error = PinRefused;

    fn pin(&mut self, process: Process, run: PageRange, frames: &mut [Frame]) -> Result<(), PinRefused> {
        self.costs.calls += 1;
        if self.refuses() {
            if !self.hides_refusals {
                return Err(PinRefused);
            }
            for (page, frame) in run.into_iter().zip(frames) {
                *frame = Frame(u64::from(self.frame_of(process.0, page.0)));
            }
            return Ok(());
        }
        self.healed += u64::from(self.refused > 0);
        for (page, frame) in run.into_iter().zip(frames) {
            let found = self.frame_of(process.0, page.0);
            self.frames[found as usize].is_pinned = true;
            *frame = Frame(u64::from(found));
            self.costs.pages += 1;
        }
        Ok(())
    }

    fn unpin(&mut self, process: Process, run: PageRange, frames: &[Frame]) -> Result<(), PinRefused> {
        self.costs.calls += 1;
        for (page, frame) in run.into_iter().zip(frames) {
            self.costs.pages += 1;
            self.unpinned.push((process.0, page.0));
            // It moves: its new frame is claimed while the old one is taken.
            let new = self.claim(process.0, page.0);
            let (old, new) = (frame.0 as usize, new as usize);
            self.frames[new].contents = core::mem::replace(&mut self.frames[old].contents, Contents::of(POISON));
            self.frames[new].is_pinned = false;
            self.frames[old].owner = None;
            self.frames[old].is_pinned = false;
            self.free.insert(0, old as u32);
            self.tables[usize::from(process.0)][(page.0 - FIRST_PAGE) as usize] = new as u32;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapwire_translation::Page;

    #[test]
    fn a_page_takes_memory_only_while_its_bytes_differ() {
        let mut memory = Memory::new(1);
        let kept = |memory: &Memory| {
            let frames = memory.frames.iter();
            frames.filter(|frame| frame.contents.bytes.is_some()).count()
        };
        memory.write(0, FIRST_ADDRESS, &[0; 3 * PAGE_BYTES]);
        assert_eq!((memory.frames.len(), kept(&memory)), (3, 0));
        memory.write(0, FIRST_ADDRESS + 5000, &[0, 1]);
        assert_eq!(kept(&memory), 1);
        let run = PageRange { first: Page(FIRST_PAGE), count: 3 };
        let mut frames = [Frame::GARBAGE; 3];
        memory.pin(Process(0), run, &mut frames).unwrap();
        memory.unpin(Process(0), run, &frames).unwrap();
        assert_eq!((memory.frames.len(), kept(&memory)), (4, 1));
        let mut read = [9; 2 * PAGE_BYTES];
        memory.read(0, FIRST_ADDRESS, &mut read);
        assert!((0..).zip(read).all(|(at, byte)| byte == u8::from(at == 5001)));
    }

    #[test]
    fn a_page_keeps_its_bytes_as_it_is_unpinned_and_its_former_frame_is_nobodys() {
        let mut memory = Memory::new(1);
        let run = PageRange { first: Page(FIRST_PAGE), count: 2 };
        let mut frames = [Frame::GARBAGE; 2];
        memory.write(0, FIRST_ADDRESS + 4000, &[7; 200]);
        memory.pin(Process(0), run, &mut frames).unwrap();
        let piece = Piece { frame: frames[0], offset: 4000, length: 200 };
        let mut read = Vec::new();
        memory.gather(0, piece, &mut read).unwrap();
        assert_eq!(read, [7; 200]);
        assert_eq!(memory.address_of(piece), Some(FIRST_ADDRESS + 4000));
        memory.unpin(Process(0), run, &frames).unwrap();
        assert!(memory.gather(0, piece, &mut read).is_err());
        let mut read = [0; 200];
        memory.read(0, FIRST_ADDRESS + 4000, &mut read);
        assert_eq!(read, [7; 200]);
    }
}
