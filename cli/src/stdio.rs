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

macro_rules! println {
    ($($text:tt)*) => {
        $crate::stdio::print(::std::format_args!("{}\n", ::std::format_args!($($text)*)))
    };
}

macro_rules! eprint {
    ($($text:tt)*) => {
        $crate::stdio::print_error(::std::format_args!($($text)*))
    };
}

macro_rules! eprintln {
    () => { $crate::stdio::print_error(::std::format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::stdio::print_error(::std::format_args!("{}\n", ::std::format_args!($($text)*)))
    };
}

/// Prints to standard output.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    if LOST.get().is_none() {
        note(io::stdout().write_fmt(text));
    }
}

/// Prints to standard error. There is nobody to tell if that fails.
pub(crate) fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Keeps the outcome of a write to standard output for the end.
pub(crate) fn note(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        let _ = LOST.set(error);
    }
}

/// Whether what is printed still arrives: a long command may stop if it does not.
pub(crate) fn is_open() -> bool {
    LOST.get().is_none()
}

/// Writes out what is buffered, and gives the exit code of a command that ended with `code`.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    note(io::stdout().flush());
    match LOST.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("mapwire: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}
