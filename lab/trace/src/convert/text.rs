//! Lines and numbers of texts, without an allocation for each.

use std::io::{self, Read};

use super::error::{ConvertError, Place};

const MAX_LINE_BYTES: usize = 64 << 10;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// The lines of a text.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    file: String,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    line: u64,
    ended: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R, file: String) -> Self {
        Self { input, file, buffer: vec![0; BUFFER_BYTES], begin: 0, end: 0, line: 0, ended: false }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn place(&self) -> Place {
        Place::Line(self.line)
    }

    /// An error of the last line given.
    #[cold]
    pub(super) fn wrong(&self, what: String) -> ConvertError {
        ConvertError::Value { file: self.file.clone(), place: self.place(), what }
    }

    /// The next line without its end; `None` at the end of the text.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, ConvertError> {
        let begin = self.begin;
        let found = memchr::memchr(b'\n', &self.buffer[begin..self.end]);
        let (begin, end) = match found {
            Some(length) => (begin, begin + length),
            None => match self.refill()? {
                Some(line) => line,
                None => return Ok(None),
            },
        };
        self.line += 1;
        // Behind the line's end, or at the end of a text whose last line has none.
        self.begin = (end + 1).min(self.end);
        let line = &self.buffer[begin..end];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Reads on until there is a line's end, or the text's; gives where the line is.
    #[cold]
    fn refill(&mut self) -> Result<Option<(usize, usize)>, ConvertError> {
        loop {
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            if self.ended {
                return Ok((self.end > 0).then_some((0, self.end)));
            }
            if self.end > MAX_LINE_BYTES {
                self.line += 1;
                return Err(self.wrong(format!("the line has more than {MAX_LINE_BYTES} bytes")));
            }
            let searched = self.end;
            match self.input.read(&mut self.buffer[searched..]) {
                Ok(0) => self.ended = true,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ConvertError::Read { file: self.file.clone(), source });
                }
            }
            if let Some(more) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                return Ok(Some((0, searched + more)));
            }
        }
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

pub(super) fn push_decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a hexadecimal number without prefix.
pub(super) fn push_hexadecimal(value: u64, out: &mut Vec<u8>) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|digit| b"0123456789abcdef"[(value >> (4 * digit) & 15) as usize]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let here = self.1.min(self.0.len()).min(out.len());
            out[..here].copy_from_slice(&self.0[..here]);
            self.0 = &self.0[here..];
            Ok(here)
        }
    }

    fn lines(text: &[u8], at_a_time: usize) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(Dribble(text, at_a_time), "f".to_owned());
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(line.to_vec());
        }
        assert_eq!(lines.place(), Place::Line(all.len() as u64));
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
        let text = [&b"short\n"[..], &vec![b'x'; BUFFER_BYTES * 2]].concat();
        let mut lines = Lines::new(&text[..], "f.csv".to_owned());
        assert_eq!(lines.next().unwrap(), Some(&b"short"[..]));
        let error = lines.next().unwrap_err().to_string();
        assert!(error.contains("f.csv, line 2: the line has more"), "{error}");
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
            let (mut decimal, mut hexadecimal) = (Vec::new(), Vec::new());
            push_decimal(value, &mut decimal);
            push_hexadecimal(value, &mut hexadecimal);
            prop_assert_eq!(std::str::from_utf8(&decimal).unwrap(), value.to_string());
            prop_assert_eq!(std::str::from_utf8(&hexadecimal).unwrap(), format!("{value:x}"));
            prop_assert_eq!(take_decimal(&mut &decimal[..]), Some(value));
            prop_assert_eq!(take_hexadecimal(&mut &hexadecimal[..]), Some(value));
        }
    }
}
