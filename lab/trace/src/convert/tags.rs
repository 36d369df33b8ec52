//! Addresses of several processes as addresses of one.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::error::ConvertError;
use crate::spread::Spread;

/// Bits of a tagged address below the process's number.
pub const TAG_SHIFT: u32 = 48;

/// Makes one address space of those of all processes, or insists that there is only one.
///
/// A tagged address has the process's number in its upper 16 bits and the address in its lower 48, which hold every address of
/// user space on x86-64 and AArch64. Processes are numbered in the order in which they occur. What does not fit is an error.
#[derive(Debug)]
pub struct Tags {
    file: String,
    tagged: bool,
    number_of: HashMap<u32, u64, BuildHasherDefault<Spread>>,
    last: Option<(u32, u64)>,
}

impl Tags {
    /// Of the trace `file`, as errors call it.
    pub fn new(file: &str, tagged: bool) -> Self {
        Self { file: file.to_owned(), tagged, number_of: HashMap::default(), last: None }
    }

    /// The bits that stand above the addresses of a process.
    ///
    /// # Errors
    /// It is another process than the ones before, and addresses are not tagged; or there are more than 65,536.
    #[inline]
    pub fn above(&mut self, node: u16, process: u16) -> Result<u64, ConvertError> {
        let key = u32::from(node) << 16 | u32::from(process);
        match self.last {
            Some((last, above)) if last == key => Ok(above),
            _ => self.look_up(key, node, process),
        }
    }

    fn look_up(&mut self, key: u32, node: u16, process: u16) -> Result<u64, ConvertError> {
        let next = self.number_of.len() as u64;
        let number = *self.number_of.entry(key).or_insert(next);
        if number > 0 && !self.tagged {
            return Err(self.wrong(format!(
                "the format tells no processes apart, and there are several (process {process} of node {node} is the second): choose \
                 one with --node and --process, or ask for their numbers in the upper bits of addresses with --tag-processes"
            )));
        }
        if number >> (64 - TAG_SHIFT) != 0 {
            return Err(
                self.wrong("it has more than 65,536 processes, too many for the upper 16 bits of addresses".to_owned())
            );
        }
        let above = number << TAG_SHIFT;
        self.last = Some((key, above));
        Ok(above)
    }

    #[inline]
    pub fn address(&self, above: u64, address: u64) -> Result<u64, ConvertError> {
        if self.tagged && address >> TAG_SHIFT != 0 {
            return Err(self.wrong(format!(
                "the address {address:#x} has more than 48 bits, and leaves no room for the process's number"
            )));
        }
        Ok(above | address)
    }

    #[cold]
    fn wrong(&self, what: String) -> ConvertError {
        ConvertError::File { file: self.file.clone(), what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_numbered_as_they_occur() {
        let mut tags = Tags::new("f", true);
        let above: Vec<_> = [(3, 1), (0, 0), (3, 1), (0, 1)]
            .map(|(node, process)| tags.above(node, process).unwrap() >> TAG_SHIFT)
            .into();
        assert_eq!(above, [0, 1, 0, 2]);
        assert_eq!(tags.address(2 << TAG_SHIFT, 0x1000).unwrap(), 0x2_0000_0000_1000);
        let error = tags.address(0, 1 << 48).unwrap_err().to_string();
        assert!(error.contains("0x1000000000000 has more than 48 bits"), "{error}");
    }

    #[test]
    fn without_tags_there_is_one_process_and_its_addresses_are_free() {
        let mut tags = Tags::new("f", false);
        assert_eq!(tags.above(3, 1).unwrap(), 0);
        assert_eq!(tags.address(0, u64::MAX).unwrap(), u64::MAX);
        assert_eq!(tags.above(3, 1).unwrap(), 0);
        let error = tags.above(3, 2).unwrap_err().to_string();
        assert!(error.contains("process 2 of node 3 is the second"), "{error}");
    }

    #[test]
    fn more_processes_than_numbers_are_an_error() {
        let mut tags = Tags::new("f", true);
        for process in 0..=u16::MAX {
            tags.above(0, process).unwrap();
        }
        assert!(tags.above(1, 0).is_err());
    }
}
