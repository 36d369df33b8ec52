//! Nodes as simulated computers have them: with their processes open, and a queue of commands for each.

use std::collections::VecDeque;

use mapwire_nic::{Config, NicError};
use mapwire_node::{Node, NodeConfig};
use mapwire_translation::{AnyDesign, CacheError, DesignConfig, PinRules};
use mapwire_wire::{CommandHeader, CommandRepr, INLINE_BYTES, ProcessId, WireError};
use thiserror::Error;

/// The user of all processes.
pub(crate) const USER: u32 = 1000;

/// Why computers cannot be made.
#[derive(Debug, Error)]
pub enum ComputerError {
    #[error("invalid number of {what} `{given}`: expected {least} to {most}")]
    Size { what: &'static str, given: u64, least: u64, most: u64 },
    #[error(transparent)]
    Nic(#[from] NicError),
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// Refuses a number of something that is too small or too large.
pub(crate) fn check_size(what: &'static str, given: u64, (least, most): (u64, u64)) -> Result<(), ComputerError> {
    match (least..=most).contains(&given) {
        true => Ok(()),
        false => Err(ComputerError::Size { what, given, least, most }),
    }
}

/// A node with so many open processes, each with so many completion words.
pub(crate) fn node(
    nic: Config,
    design: &DesignConfig,
    (processes, words): (u16, u32),
    rules: PinRules,
) -> Result<Node<AnyDesign>, ComputerError> {
    let mut node = Node::new(NodeConfig { nic, uid: USER }, AnyDesign::new(design)?)?;
    for process in 0..processes {
        node.open_process(ProcessId(process), rules, words as usize)?;
    }
    Ok(node)
}

/// A command in the queue of a process.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) header: CommandHeader,
    pub(crate) inline: [u8; INLINE_BYTES],
    pub(crate) inline_bytes: usize,
}

impl Command {
    pub(crate) fn new(command: &CommandRepr, data: &[u8]) -> Result<Self, WireError> {
        let mut inline = [0; INLINE_BYTES];
        let (header, inline_bytes) = command.emit(data, &mut inline)?;
        Ok(Self { header, inline, inline_bytes })
    }
}

/// The command queue of a process.
#[derive(Debug, Default)]
pub(crate) struct Commands(VecDeque<Command>);

impl Commands {
    pub(crate) fn push(&mut self, command: Command) {
        self.0.push_back(command);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives the node what it takes. How many commands that were.
    #[inline]
    pub(crate) fn serve(&mut self, node: &mut Node<AnyDesign>, process: ProcessId) -> u64 {
        let mut served = 0;
        while !self.0.is_empty() && node.accepts_command(process) {
            let Some(command) = self.0.pop_front() else { break };
            node.handle_command(process, &command.header, &command.inline);
            served += 1;
        }
        served
    }
}
