//! Turns far memory on at the start of a program.

use mapwire_host::descriptors;

use crate::fork;
use crate::maps;
use crate::report;
use crate::settings::Settings;
use crate::space::Space;
use crate::state::{CANNOT_START, set_space};
use crate::threads;

/// Lowest descriptor of this library: programs that use low numbers as they like would close it. A process may have 1,024 by default, and
/// each layer of the file takes one.
const DESCRIPTORS: i32 = 768;

/// Runs before the program does, when the C library is ready.
#[used]
// SAFETY: the section is an array of functions without results, which the loader calls one after the other.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let settings = match Settings::read(|name| std::env::var_os(name)) {
        Ok(Some(settings)) => settings,
        Ok(None) => return,
        Err(error) => refuse(&error),
    };
    descriptors::keep_above(DESCRIPTORS);
    match threads::serving(|| Space::start(&settings, say)) {
        Ok(space) => {
            maps::close(&space);
            fork::register();
            set_space(space);
        }
        Err(error) => refuse(&error),
    }
    if let Some(first) = settings.stats {
        report::ask(first);
        // SAFETY: the function has the form that is asked for, and this library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}

extern "C" fn at_exit() {
    report::at_end();
}

fn say(text: &str) {
    report::line(format_args!("mapwire far: {text}"));
}

/// A program that requests far memory does not run without it: it would take all RAM.
fn refuse(error: &dyn std::error::Error) -> ! {
    report::line(format_args!("mapwire far: {error}"));
    // SAFETY: nothing of the program has run, so that nothing is left undone.
    unsafe { libc::_exit(CANNOT_START) }
}
