//! Millipage: shared memory between computers with Windows NT and FastMessages.
mod bench;
#[cfg(test)]
mod tests;
