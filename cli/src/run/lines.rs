//! Cuts a rank's output into whole lines and puts the rank before each.

/// A line longer than this is passed on in pieces, so that one rank cannot fill the memory.
pub(super) const LONGEST_LINE: usize = 1 << 20;

/// The output of one rank on one stream. Bytes go through unchanged; only whole lines come out, so
/// that lines of several ranks never mix.
pub(super) struct Lines {
    prefix: Vec<u8>,
    partial: Vec<u8>,
}

impl Lines {
    /// With `tag`, each line begins with `[rank] `.
    pub(super) fn new(rank: u32, tag: bool) -> Self {
        let prefix = if tag { format!("[{rank}] ").into_bytes() } else { Vec::new() };
        Self { prefix, partial: Vec::new() }
    }

    /// Takes the next bytes and appends the lines that they finish to `out`.
    pub(super) fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            out.extend_from_slice(&self.prefix);
            out.append(&mut self.partial);
            out.extend_from_slice(line);
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() >= LONGEST_LINE {
            self.piece(out);
        }
    }

    /// The end of the stream: what is left comes out, and with tags a newline that the rank did not
    /// write, so that the next line begins in a line of its own.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.piece(out);
        }
    }

    fn piece(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.append(&mut self.partial);
        if !self.prefix.is_empty() {
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(tag: bool, pieces: &[&[u8]]) -> Vec<u8> {
        let mut lines = Lines::new(3, tag);
        let mut out = Vec::new();
        for piece in pieces {
            lines.feed(piece, &mut out);
        }
        lines.finish(&mut out);
        out
    }

    #[test]
    fn each_line_begins_with_its_rank() {
        assert_eq!(through(true, &[b"a\nb\n"]), b"[3] a\n[3] b\n");
        assert_eq!(through(true, &[b"\n\n"]), b"[3] \n[3] \n");
        assert_eq!(through(true, &[b""]), b"");
    }

    #[test]
    fn a_line_that_arrives_piecemeal_comes_out_whole() {
        let mut lines = Lines::new(0, true);
        let mut out = Vec::new();
        lines.feed(b"hel", &mut out);
        assert_eq!(out, b"");
        lines.feed(b"lo\nwor", &mut out);
        assert_eq!(out, b"[0] hello\n");
    }

    #[test]
    fn an_unfinished_line_comes_out_at_the_end() {
        assert_eq!(through(true, &[b"a\nb"]), b"[3] a\n[3] b\n");
        assert_eq!(through(false, &[b"a\nb"]), b"a\nb");
    }

    #[test]
    fn bytes_that_are_no_text_go_through_unchanged() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(through(false, &[&all, &all]), [all.clone(), all].concat());
    }

    #[test]
    fn an_endless_line_comes_out_cut_and_takes_bounded_memory() {
        let mut lines = Lines::new(0, true);
        let mut out = Vec::new();
        for _ in 0..40 {
            lines.feed(&[b'x'; 65536], &mut out);
            assert!(lines.partial.len() < LONGEST_LINE + 65536);
        }
        lines.finish(&mut out);
        assert_eq!(out.iter().filter(|b| **b == b'x').count(), 40 * 65536);
    }
}
