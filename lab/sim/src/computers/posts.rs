//! How programs post commands: completion words, pages that are checked and pinned, words that are written into the NIC's memory.

use mapwire_node::Told;
use mapwire_translation::{PAGE_BYTES, Page, PageRange, Pinning, TranslationDesign};
use mapwire_wire::{CommandRepr, INLINE_BYTES, SHORT_BYTES, SHORT_SIGNAL_BYTES};

use super::nic::Command;
use super::pins::Pins;
use super::program::{After, Fetch, Runner, Send, Word};
use super::{Computers, ComputersError};
use crate::hardware::{Cost, Ps};

/// The pages of a range of memory.
fn pages(address: u64, length: u64) -> PageRange {
    let page_bytes = PAGE_BYTES as u64;
    let first = address / page_bytes;
    PageRange { first: Page(first), count: (address + length.max(1)).div_ceil(page_bytes) - first }
}

impl Computers {
    /// A command that is complete as soon as it is posted needs its word no more.
    pub(super) fn free_word(&mut self, node: usize, told: &Told) {
        let Told::Done { process, completion } = *told else { return };
        let mut runners = self.programs.iter_mut();
        let is_it = |runner: &&mut Runner| usize::from(runner.of.node.0) == node && runner.of.process == process;
        if let Some(runner) = runners.find(is_it)
            && let Some(taken) = runner.taken.get_mut(completion as usize)
        {
            *taken = false;
        }
    }

    fn take_word(&mut self, program: usize) -> Result<Word, ComputersError> {
        let runner = &mut self.programs[program];
        let free = runner.taken.iter().position(|taken| !taken);
        // One that is complete, and that the program does not ask about, is used again.
        let free = free.or_else(|| runner.complete.iter().position(|complete| *complete));
        let Some(number) = free else {
            let text = "all completion words are in use: wait for some, or give the shape more";
            return Err(ComputersError::Host { node: runner.of.node, text: text.to_owned() });
        };
        (runner.taken[number], runner.complete[number]) = (true, false);
        Ok(Word(number as u32))
    }

    /// Makes the pages of a transfer usable by the NIC. How long that takes the program.
    fn hold(&mut self, program: usize, word: Word, range: PageRange) -> Result<Ps, ComputersError> {
        let of = self.programs[program].of;
        let computer = &mut self.computers[usize::from(of.node.0)];
        let mut pins = Pins::of(&mut computer.memory);
        let held = computer.node.hold(of.process, &mut pins, word.0, range);
        let calls = pins.calls;
        held.map_err(|error| ComputersError::Host { node: of.node, text: error.to_string() })?;
        let check_ps = match computer.node.nic().translation().pinning() {
            Pinning::BeforeTransfer => self.profile.of(Cost::HostCheck),
            Pinning::OnMiss => 0,
        };
        let takes_ps = check_ps + calls.of_program(&self.profile);
        computer.load.checks_ps += takes_ps;
        Ok(takes_ps)
    }

    pub(super) fn post_send(&mut self, program: usize, send: Send) -> Result<(), ComputersError> {
        let Send { import, offset, address, length, notify, signal } = send;
        let most = match signal {
            Some(_) => SHORT_SIGNAL_BYTES,
            None => SHORT_BYTES,
        } as u64;
        let is_copied = length <= self.shape.short_bytes;
        if is_copied && length <= most {
            let of = self.programs[program].of;
            let mut data = vec![0; length as usize];
            let memory = &mut self.computers[usize::from(of.node.0)].memory;
            memory.read(of.process.0, address, &mut data);
            let command = CommandRepr::ShortSend { import, offset, length: length as u32, notify, signal };
            return self.post(program, &command, &data, None, 0);
        }
        let word = self.take_word(program)?;
        let held_ps = self.hold(program, word, pages(address, length))?;
        let command = CommandRepr::LongSend { import, offset, address, length, notify, signal, completion: word.0 };
        if is_copied {
            self.post_copied(program, &command, length)
        } else {
            self.post(program, &command, &[], Some(word), held_ps)
        }
    }

    pub(super) fn post_fetch(&mut self, program: usize, fetch: Fetch) -> Result<(), ComputersError> {
        let word = self.take_word(program)?;
        let held_ps = self.hold(program, word, pages(fetch.address, fetch.length))?;
        let command = CommandRepr::Fetch {
            import: fetch.import,
            offset: fetch.offset,
            address: fetch.address,
            length: fetch.length,
            completion: word.0,
        };
        self.post(program, &command, &[], Some(word), held_ps)
    }

    /// A long send whose data are charged as those of a short one: the program writes them, and need not wait.
    fn post_copied(&mut self, program: usize, command: &CommandRepr, length: u64) -> Result<(), ComputersError> {
        let words = length.div_ceil(4) - 1;
        let writes_ps = words * self.profile.of(Cost::HostWrite);
        self.post(program, command, &[], None, writes_ps)
    }

    /// The program writes a command into the NIC's memory, after it has been busy for so long.
    fn post(
        &mut self,
        program: usize,
        command: &CommandRepr,
        data: &[u8],
        posted: Option<Word>,
        before_ps: Ps,
    ) -> Result<(), ComputersError> {
        let mut inline = vec![0; INLINE_BYTES];
        let (header, inline_bytes) = command.emit(data, &mut inline)?;
        inline.truncate(inline_bytes);
        let is_short = matches!(command, CommandRepr::ShortSend { .. });
        let words = self.profile.of(Cost::CommandWords) + inline_bytes.div_ceil(4) as u64;
        let writes = words - u64::from(is_short && words > 0);
        let writes_ps = writes * self.profile.of(Cost::HostWrite);
        let takes_ps = before_ps + self.profile.of(Cost::HostPost) + writes_ps;
        let runner = &mut self.programs[program];
        runner.posted = posted;
        let command =
            Command { process: runner.of.process.0, header, inline, is_copied: posted.is_none() && !is_short };
        self.step(program, takes_ps, "posts", After::Post(command));
        Ok(())
    }
}
