//! What commands print. The macros here hide those of the standard library, which panic where nothing can be written.
//!
//! A reader that has gone is no error (`mapwire doctor | head -1`): what is printed after that is dropped. Any other error of
//! standard output, such as a full disk, is kept and makes the command fail at its end.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The first error of standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to standard output.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {
        $crate::stdio::print(::std::format_args!("{}\n", ::std::format_args!($($text)*)))
    };
}

/// Prints to standard error.
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => {
        $crate::stdio::print_error(::std::format_args!($($text)*))
    };
}

/// Prints a line to standard error.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::stdio::print_error(::std::format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::stdio::print_error(::std::format_args!("{}\n", ::std::format_args!($($text)*)))
    };
}

/// Prints to standard output.
pub fn print(text: fmt::Arguments<'_>) {
    if LOST.get().is_none() {
        note(io::stdout().write_fmt(text));
    }
}

/// Prints to standard error. There is nobody to tell if that fails.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Columns of the terminal that standard output is, else of `COLUMNS`, else 100.
#[must_use]
pub fn columns() -> usize {
    known_columns().unwrap_or(100)
}

/// Columns of the terminal that standard output is, else of `COLUMNS`.
#[must_use]
pub fn known_columns() -> Option<usize> {
    let terminal = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).map(|size| size.ws_col);
    let variable = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
    let columns = terminal.ok().filter(|columns| *columns > 0).or_else(variable);
    columns.map(usize::from)
}

/// `text` in lines of at most `columns`, broken at spaces; all but the first begin with `indent` spaces. A longer word stands alone.
#[must_use]
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let mut wrapped = String::new();
    let mut used = indent;
    for (index, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 {
            if used + 1 + length > columns {
                wrapped.push('\n');
                wrapped.extend(std::iter::repeat_n(' ', indent));
                used = indent;
            } else {
                wrapped.push(' ');
                used += 1;
            }
        }
        wrapped.push_str(word);
        used += length;
    }
    wrapped
}

/// Keeps the outcome of a write to standard output for the end.
pub fn note(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        let _ = LOST.set(error);
    }
}

/// Whether what is printed still arrives: a long command may stop if it does not.
#[must_use]
pub fn is_open() -> bool {
    LOST.get().is_none()
}

/// Writes out what is buffered, and gives the exit code of a command that ended with `code`.
#[must_use]
pub fn finish(code: ExitCode) -> ExitCode {
    note(io::stdout().flush());
    match LOST.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("mapwire: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_before_they_are_too_long() {
        assert_eq!(wrapped("one two three", 4, 12), "one two\n    three");
        assert_eq!(wrapped("one two three", 4, 17), "one two three");
        assert_eq!(wrapped("longer-than-that x", 2, 8), "longer-than-that\n  x");
        assert_eq!(wrapped("", 4, 8), "");
    }
}
