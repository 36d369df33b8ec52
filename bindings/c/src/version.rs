//! Versions: of the header that a program was compiled with, and of the library that it runs with.

use core::ffi::{CStr, c_char};

use crate::failure::{Failure, call};
use crate::status::mw_status_t;

/// Version of this header: the first number.
pub const MW_VERSION_MAJOR: u32 = 0;
/// Version of this header: the second number.
pub const MW_VERSION_MINOR: u32 = 1;
/// Version of this header: the third number.
pub const MW_VERSION_PATCH: u32 = 0;
/// The three numbers in one that grows: 1002003 is version 1.2.3.
pub const MW_VERSION_NUMBER: u32 = MW_VERSION_MAJOR * 1_000_000 + MW_VERSION_MINOR * 1_000 + MW_VERSION_PATCH;
/// The binary interface that this header describes; also the number behind `libmapwire.so.`. It grows when something is removed or
/// changed. Additions do not change it: structures say their own size, and new functions are new symbols.
pub const MW_ABI: u32 = 0;

/// Returns the version of the library as text: "0.1.0". Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn mw_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version holds no NUL"),
    };
    VERSION.as_ptr()
}

/// Returns the version of the library as one number, like `MW_VERSION_NUMBER`.
#[unsafe(no_mangle)]
pub extern "C" fn mw_version_number() -> u32 {
    MW_VERSION_NUMBER
}

/// Checks whether a program compiled with a header of version `number` (`MW_VERSION_NUMBER`) and binary interface `abi` (`MW_ABI`) can use
/// this library. For programs that load it by hand: the dynamic linker checks by the file's name.
///
/// # Errors
/// `MW_ERR_VERSION`: another binary interface, or a library that is older than the header.
#[unsafe(no_mangle)]
pub extern "C" fn mw_version_check(number: u32, abi: u32) -> mw_status_t {
    call(|| {
        // A patch adds nothing to the header.
        if abi == MW_ABI && number / 1_000 <= MW_VERSION_NUMBER / 1_000 {
            return Ok(());
        }
        Err(Failure {
            status: mw_status_t::MW_ERR_VERSION,
            message: format!(
                "the program was compiled for mapwire {}.{}.{} with binary interface {abi}, and runs with {} with binary interface {MW_ABI}: compile it again, or install the library that it was compiled for",
                number / 1_000_000,
                number / 1_000 % 1_000,
                number % 1_000,
                env!("CARGO_PKG_VERSION"),
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_package() {
        let version = format!("{MW_VERSION_MAJOR}.{MW_VERSION_MINOR}.{MW_VERSION_PATCH}");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn an_older_header_is_served_and_a_newer_one_is_not() {
        let ok = |number, abi| mw_version_check(number, abi) == mw_status_t::MW_OK;
        assert!(ok(MW_VERSION_NUMBER, MW_ABI));
        assert!(ok(0, MW_ABI));
        assert!(ok(MW_VERSION_NUMBER + 1, MW_ABI), "a patch is no matter");
        assert!(!ok(MW_VERSION_NUMBER + 1_000, MW_ABI));
        assert!(!ok(MW_VERSION_NUMBER, MW_ABI + 1));
    }
}
