//! Lines and numbers of texts, without an allocation for each.

use std::io::{BufRead, BufReader, Read};

use super::import::Fault;

const MAX_LINE_BYTES: usize = 64 << 10;
/// Bytes of text read or written at a time.
pub(super) const TEXT_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(TEXT_BYTES, input), line: Vec::new() }
    }

    /// The next line without its end; `None` at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Fault> {
        self.line.clear();
        let most = MAX_LINE_BYTES as u64 + 2;
        if (&mut self.input).take(most).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        if line.len() > MAX_LINE_BYTES {
            return Err(Fault::from(format!("the line has more than {MAX_LINE_BYTES} bytes")));
        }
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

/// Takes a decimal number off the front; `None` if there is none, or it is beyond 64 bits.
#[inline]
pub(super) fn take_decimal(text: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut digits = 0;
    while let Some(digit) = text.get(digits).map(|byte| byte.wrapping_sub(b'0'))
        && digit < 10
    {
        // Nineteen digits cannot be too many.
        value = if digits < 19 {
            value * 10 + u64::from(digit)
        } else {
            value.checked_mul(10)?.checked_add(u64::from(digit))?
        };
        digits += 1;
    }
    *text = &text[digits..];
    (digits > 0).then_some(value)
}

/// Takes a hexadecimal number without prefix off the front; `None` if there is none, or it is beyond 64 bits.
#[inline]
pub(super) fn take_hexadecimal(text: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut digits = 0;
    while let Some(digit) = text.get(digits).and_then(|byte| hexadecimal(*byte)) {
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
        digits += 1;
    }
    *text = &text[digits..];
    (digits > 0).then_some(value)
}

#[inline]
fn hexadecimal(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Takes `0x` off the front, if it is there.
#[inline]
pub(super) fn take_prefix(text: &mut &[u8]) -> bool {
    let prefixed = matches!(text, [b'0', b'x' | b'X', ..]);
    if prefixed {
        *text = &text[2..];
    }
    prefixed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let here = self.1.min(self.0.len()).min(out.len());
            out[..here].copy_from_slice(&self.0[..here]);
            self.0 = &self.0[here..];
            Ok(here)
        }
    }

    fn lines(text: &[u8], at_a_time: usize) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(Dribble(text, at_a_time));
        let mut all = Vec::new();
        while let Ok(Some(line)) = lines.next() {
            all.push(line.to_vec());
        }
        all
    }

    #[test]
    fn lines_end_at_line_ends_of_both_kinds_and_at_the_end() {
        for at_a_time in [1, 2, 100] {
            assert_eq!(lines(b"a\r\n\nbc\nd", at_a_time), [&b"a"[..], b"", b"bc", b"d"]);
            assert_eq!(lines(b"a\n", at_a_time), [b"a"]);
            assert_eq!(lines(b"", at_a_time), Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn a_line_that_never_ends_is_an_error_that_names_it() {
        let text = [&b"short\n"[..], &vec![b'x'; TEXT_BYTES * 2]].concat();
        let mut lines = Lines::new(&text[..]);
        assert!(matches!(lines.next(), Ok(Some(b"short"))));
        let Err(Fault::Value { what, .. }) = lines.next() else { panic!() };
        assert!(what.contains("the line has more"), "{what}");
    }

    #[test]
    fn numbers_end_where_their_digits_do() {
        let mut text = &b"18446744073709551615,7"[..];
        assert_eq!(take_decimal(&mut text), Some(u64::MAX));
        assert_eq!(text, b",7");
        assert_eq!(take_decimal(&mut &b"18446744073709551616"[..]), None);
        assert_eq!(take_decimal(&mut &b"000000000000000000000000000012"[..]), Some(12));
        assert_eq!(take_decimal(&mut &b"x"[..]), None);
        assert_eq!(take_hexadecimal(&mut &b"fFfFfFfFfFfFfFfF"[..]), Some(u64::MAX));
        assert_eq!(take_hexadecimal(&mut &b"10000000000000000"[..]), None);
        assert_eq!(take_hexadecimal(&mut &b"g"[..]), None);
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_library(text in "[ab\\n\\r]{0,40}", at_a_time in 1..5_usize) {
            let expected: Vec<&[u8]> = text
                .split_terminator('\n')
                .map(|line| line.strip_suffix('\r').unwrap_or(line).as_bytes())
                .collect();
            prop_assert_eq!(lines(text.as_bytes(), at_a_time), expected);
        }

        #[test]
        fn numbers_read_back(value: u64) {
            let (decimal, hexadecimal) = (value.to_string(), format!("{value:x}"));
            prop_assert_eq!(take_decimal(&mut decimal.as_bytes()), Some(value));
            prop_assert_eq!(take_hexadecimal(&mut hexadecimal.as_bytes()), Some(value));
        }
    }
}
