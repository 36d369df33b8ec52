//! What a launcher of either version does.

use super::wire::{Limit, Wire};
use crate::LaunchError;

/// What differs between the two versions. Texts are ASCII without blanks or semicolons.
pub(super) trait Dialect: std::fmt::Debug + Send {
    fn protocol(&self) -> &'static str;
    /// Characters of the longest value.
    fn longest_value(&self) -> usize;
    fn put(&mut self, wire: &mut Wire, key: &str, value: &str, limit: Limit) -> Result<(), LaunchError>;
    /// What `rank` put under `key`.
    fn get(&mut self, wire: &mut Wire, rank: u32, key: &str, limit: Limit) -> Result<Option<String>, LaunchError>;
    fn fence(&mut self, wire: &mut Wire, limit: Limit) -> Result<(), LaunchError>;
    /// The command that ends the job; it is not answered.
    fn abort(&self, code: i32, message: &str) -> Vec<u8>;
    fn finish(&mut self, wire: &mut Wire, limit: Limit) -> Result<(), LaunchError>;
}
