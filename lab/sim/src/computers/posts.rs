//! How programs post sends: completion words, pages that are checked and pinned, words that are written into the NIC's memory.

use mapwire_node::Told;
use mapwire_translation::{PageRange, Pinning, TranslationDesign};
use mapwire_wire::{CommandRepr, SHORT_BYTES};

use super::nic::Posted;
use super::pins::Pins;
use super::program::{After, Runner, Send};
use super::{Computers, ComputersError};
use crate::hardware::node::Command;
use crate::hardware::{Cost, Ps};

impl Computers {
    /// A command that is complete as soon as it is posted needs its word no more.
    pub(super) fn free_word(&mut self, node: usize, told: &Told) {
        let Told::Done { process, completion } = *told else { return };
        let is_it = |runner: &&mut Runner| usize::from(runner.of.node.0) == node && runner.of.process == process;
        if let Some(runner) = self.programs.iter_mut().find(is_it)
            && let Some(taken) = runner.taken.get_mut(completion as usize)
        {
            *taken = false;
        }
    }

    fn take_word(&mut self, program: usize) -> Result<u32, ComputersError> {
        let runner = &mut self.programs[program];
        let free = runner.taken.iter().position(|taken| !taken);
        // One that is complete, and that the program has not awaited, is used again.
        let free = free.or_else(|| runner.complete.iter().position(|complete| *complete));
        let Some(number) = free else {
            let text = "all completion words are in use: wait for some, or give the shape more";
            return Err(ComputersError::Host { node: runner.of.node, text: text.to_owned() });
        };
        (runner.taken[number], runner.complete[number]) = (true, false);
        runner.posted.retain(|posted| *posted as usize != number);
        Ok(number as u32)
    }

    /// Makes the pages of a transfer usable by the NIC. How long that takes the program.
    fn hold(&mut self, program: usize, word: u32, (address, bytes): (u64, u64)) -> Result<Ps, ComputersError> {
        let of = self.programs[program].of;
        let failed = |error: &dyn core::fmt::Display| ComputersError::Host { node: of.node, text: error.to_string() };
        let range = PageRange::covering(address, bytes).map_err(|error| failed(&error))?;
        let computer = &mut self.computers[usize::from(of.node.0)];
        let mut pins = Pins::of(&mut computer.memory);
        let held = computer.node.hold(of.process, &mut pins, word, range);
        let calls = pins.calls;
        held.map_err(|error| failed(&error))?;
        let check_ps = match computer.node.nic().translation().pinning() {
            Pinning::BeforeTransfer => self.profile.of(Cost::HostCheck),
            Pinning::OnMiss => 0,
        };
        let takes_ps = check_ps + calls.of_program(&self.profile);
        computer.load.checks_ps += takes_ps;
        Ok(takes_ps)
    }

    /// The program writes a send into the NIC's memory. A long one of which the shape says that it is short is carried out as it is, and
    /// charged as if its data went into the queue: the program writes them, and need not wait.
    pub(super) fn post(&mut self, program: usize, send: Send) -> Result<(), ComputersError> {
        let Send { import, offset, address, bytes } = send;
        let of = self.programs[program].of;
        let (notify, signal) = (false, None);
        let (is_copied, is_short) = (bytes <= self.shape.short_bytes, bytes <= SHORT_BYTES as u64);
        let write_ps = self.profile.of(Cost::HostWrite);
        let (mut data, mut before_ps) = (Vec::new(), 0);
        let command = if is_copied && is_short {
            data = vec![0; bytes as usize];
            self.computers[usize::from(of.node.0)].memory.read(of.process.0, address, &mut data);
            CommandRepr::ShortSend { import, offset, length: bytes as u32, notify, signal }
        } else {
            let completion = self.take_word(program)?;
            before_ps = self.hold(program, completion, (address, bytes))?;
            if is_copied {
                before_ps = (bytes.div_ceil(4) - 1) * write_ps;
            } else {
                self.programs[program].posted.push(completion);
            }
            CommandRepr::LongSend { import, offset, address, length: bytes, notify, signal, completion }
        };
        let command = Command::new(&command, &data)?;
        let words = self.profile.of(Cost::CommandWords) + command.inline_bytes.div_ceil(4) as u64;
        let writes = words - u64::from(is_copied && is_short && words > 0);
        let takes_ps = before_ps + self.profile.of(Cost::HostPost) + writes * write_ps;
        let posted = Posted { command, is_copied: is_copied && !is_short };
        self.step(program, takes_ps, "posts", After::Post(posted));
        Ok(())
    }
}
