//! Messages on standard error from a signal handler: no allocation, no lock.

use core::fmt::{self, Write};

/// Longest message, in bytes.
const MOST_BYTES: usize = 480;

/// Text of limited length, on the stack.
pub(super) struct Line {
    bytes: [u8; MOST_BYTES],
    used: usize,
}

impl Line {
    pub(super) fn new() -> Self {
        Self { bytes: [0; MOST_BYTES], used: 0 }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MOST_BYTES - self.used;
        let part = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.used..self.used + part.len()].copy_from_slice(part);
        self.used += part.len();
        Ok(())
    }
}

/// Writes one line, truncated if it is too long.
pub(super) fn complain(message: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = write!(line, "mapwire: {message}");
    line.used = line.used.min(MOST_BYTES - 1);
    let _ = line.write_str("\n");
    // If standard error is closed, nobody can be told.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
