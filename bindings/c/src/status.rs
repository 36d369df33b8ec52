//! The codes, one for each kind of error.

use core::ffi::{CStr, c_char};

use mapwire::{Error, ErrorKind};

/// Result of a call: `MW_OK`, or a negative code. `mw_error_message()` says more. Later versions may return codes that this header does
/// not name: treat them as failures.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mw_status_t {
    /// Success.
    MW_OK = 0,
    /// An invalid argument: `NULL`, an unknown enumerator or flag, a structure without its size, an invalid name, a length of 0 that must
    /// not be.
    MW_ERR_ARGUMENT = -1,
    /// A range outside the buffer, export, import or shared memory; a number of a rank, lock or barrier that does not exist.
    MW_ERR_RANGE = -2,
    /// A signal that is not 8 aligned bytes.
    MW_ERR_ALIGNMENT = -3,
    /// Memory that this process does not have, may not use so, or that cannot serve this purpose; a proxy address in no import.
    MW_ERR_ADDRESS = -4,
    /// A right that the import does not carry.
    MW_ERR_RIGHTS = -5,
    /// The exporter does not admit this process, or the token is wrong.
    MW_ERR_REFUSED = -6,
    /// The export was revoked.
    MW_ERR_REVOKED = -7,
    /// A rank, or the launcher, has left or died.
    MW_ERR_GONE = -8,
    /// The timeout has expired.
    MW_ERR_TIMEOUT = -9,
    /// The name is taken, or the object is open already.
    MW_ERR_EXISTS = -10,
    /// The present state forbids it: a lock that is not held, a redirection of mapped memory, two calls that exclude each other.
    MW_ERR_STATE = -11,
    /// A limit is reached: of memory, address space, pinned pages, descriptors, or a table of the NIC. The message names it.
    MW_ERR_LIMIT = -12,
    /// A `MAPWIRE_*` variable is invalid, or differs between ranks.
    MW_ERR_CONFIG = -13,
    /// The operating system refused for another reason.
    MW_ERR_SYSTEM = -14,
    /// A peer or the launcher does not follow the protocol; the job cannot continue.
    MW_ERR_PROTOCOL = -15,
    /// Program, library and launcher are incompatible.
    MW_ERR_VERSION = -16,
    /// A fault of mapwire itself.
    MW_ERR_INTERNAL = -17,
    /// The calling process is a child by fork(2) of the one that joined the job: nodes do not work there.
    MW_ERR_FORKED = -18,
}

use mw_status_t::*;

/// Returns the name of a code, such as "MW_ERR_RANGE"; "MW_ERR_?" for an unknown number. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn mw_status_name(status: i32) -> *const c_char {
    ALL.iter().find(|(code, _)| *code as i32 == status).map_or(c"MW_ERR_?", |(_, name)| *name).as_ptr()
}

/// The table of the codes, their names and the kinds of error that they stand for.
macro_rules! codes {
    ($($status:ident: $kind:ident),* $(,)?) => {
        const ALL: &[(mw_status_t, &CStr)] = &[(MW_OK, c"MW_OK"), $((
            $status,
            match CStr::from_bytes_with_nul(concat!(stringify!($status), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier holds no NUL"),
            },
        )),*];

        /// The code of an error.
        #[cold]
        pub(crate) fn status_of(error: &Error) -> mw_status_t {
            match error.kind() {
                $(ErrorKind::$kind => $status,)*
                _ => MW_ERR_INTERNAL,
            }
        }
    };
}

codes! {
    MW_ERR_ARGUMENT: Argument,
    MW_ERR_RANGE: Range,
    MW_ERR_ALIGNMENT: Alignment,
    MW_ERR_ADDRESS: Address,
    MW_ERR_RIGHTS: Rights,
    MW_ERR_REFUSED: Refused,
    MW_ERR_REVOKED: Revoked,
    MW_ERR_GONE: Gone,
    MW_ERR_TIMEOUT: Timeout,
    MW_ERR_EXISTS: Exists,
    MW_ERR_STATE: State,
    MW_ERR_LIMIT: Limit,
    MW_ERR_CONFIG: Config,
    MW_ERR_SYSTEM: System,
    MW_ERR_PROTOCOL: Protocol,
    MW_ERR_VERSION: Version,
    MW_ERR_INTERNAL: Internal,
    MW_ERR_FORKED: Forked,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(status: i32) -> &'static str {
        // SAFETY: the names are constants with a NUL at their end.
        unsafe { CStr::from_ptr(mw_status_name(status)) }.to_str().unwrap()
    }

    #[test]
    fn every_code_has_its_name_and_no_two_are_alike() {
        for (index, (status, _)) in ALL.iter().enumerate() {
            assert_eq!(*status as i32, -(index as i32), "the codes run on without a hole");
            assert_eq!(name(*status as i32), format!("{status:?}"));
        }
        assert_eq!(name(1), "MW_ERR_?");
        assert_eq!(name(-(ALL.len() as i32)), "MW_ERR_?");
        assert_eq!(name(i32::MIN), "MW_ERR_?");
    }
}
