//! Failures of calls: a code for the program, and a message for people, kept for the calling thread.

use core::cell::RefCell;
use core::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::status::{mw_status_t, status_of};

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: mw_status_t,
    pub(crate) message: String,
}

impl Failure {
    #[cold]
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self { status: mw_status_t::MW_ERR_ARGUMENT, message: message.into() }
    }

    /// A call that the present state forbids.
    #[cold]
    pub(crate) fn state(message: impl Into<String>) -> Self {
        Self { status: mw_status_t::MW_ERR_STATE, message: message.into() }
    }
}

impl From<mapwire::Error> for Failure {
    #[cold]
    fn from(error: mapwire::Error) -> Self {
        Self { status: status_of(&error), message: error.to_string() }
    }
}

thread_local! {
    /// The message and its NUL; nothing before the first failure.
    static MESSAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a message for the calling thread.
#[cold]
fn remember(message: &str) {
    // A thread that is ending may have lost its storage for the message: the code is still returned.
    let _ = MESSAGE.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.clear();
        kept.extend(message.bytes().filter(|&byte| byte != 0));
        kept.push(0);
    });
}

/// Runs the body of a function of the library: returns its code, keeps its message, and catches panics.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> mw_status_t {
    // State that a panic leaves half done is behind locks, whose users tolerate that.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => mw_status_t::MW_OK,
        Ok(Err(failure)) => {
            remember(&failure.message);
            failure.status
        }
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no message");
            remember(&format!(
                "mapwire has a fault ({what}): please report it; free the objects of this call and leave the job"
            ));
            // Dropping it may panic again.
            core::mem::forget(panic);
            mw_status_t::MW_ERR_INTERNAL
        }
    }
}

/// Returns why this thread's last failed call failed: what was wrong, with which value, and how to fix it, in one line of UTF-8. Empty
/// before the first failure; calls that succeed do not change it. The text belongs to the library and is valid until the next failed call
/// of this thread, or the thread's end. Never `NULL`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_error_message() -> *const c_char {
    MESSAGE
        .try_with(|kept| {
            let kept = kept.borrow();
            if kept.is_empty() { c"".as_ptr() } else { kept.as_ptr().cast() }
        })
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    fn message() -> String {
        let text = mw_error_message();
        // SAFETY: `mw_error_message` returns a text with a NUL, valid until this thread fails again.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_failure_is_kept_for_its_thread_alone() {
        assert_eq!(call(|| Ok(())), mw_status_t::MW_OK);
        assert_eq!(message(), "");
        let status = call(|| Err(Failure::argument("the left one is missing")));
        assert_eq!(status, mw_status_t::MW_ERR_ARGUMENT);
        assert_eq!(message(), "the left one is missing");
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(message(), ""));
        });
        assert_eq!(call(|| Ok(())), mw_status_t::MW_OK);
        assert_eq!(message(), "the left one is missing");
    }

    #[test]
    fn a_message_ends_at_its_end_whatever_it_holds() {
        call(|| Err(Failure::state("a\0b")));
        assert_eq!(message(), "ab");
    }

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(call(|| panic!("wheel {} is off", 3)), mw_status_t::MW_ERR_INTERNAL);
        assert!(message().contains("wheel 3 is off"), "{}", message());
        assert_eq!(call(|| std::panic::panic_any(7_u8)), mw_status_t::MW_ERR_INTERNAL);
    }
}
