//! The codes, and which error has which: here and nowhere else.

use core::ffi::{CStr, c_char};

use mapwire::Error;
use mapwire_driver::DriverError;
use mapwire_driver::pages::PagesError;
use mapwire_driver::shared::SharedError;
use mapwire_host::faults::{ProtectionError, WatchError};
use mapwire_host::memory::MemoryError;
use mapwire_host::pinning::PinError;
use mapwire_host::views::ViewError;
use mapwire_nic::{CommandError, NicError};
use mapwire_transport::rendezvous::RendezvousError;
use mapwire_transport::shm::channel::ChannelError;
use mapwire_vmmc::{ProxyError, VmmcError};
use mapwire_wire::Refusal;

/// How a call went: `MW_OK`, or a negative code. `mw_error_message()` tells more. Later versions may give codes that this
/// header does not name: treat them as failures.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mw_status_t {
    /// Done.
    MW_OK = 0,
    /// An argument that cannot be: `NULL`, an unknown enumerator or flag, a structure without its size, a name that is none,
    /// a length of 0 where there must be something.
    MW_ERR_ARGUMENT = -1,
    /// A range outside the buffer, export, import or shared memory; a number of a rank, lock or barrier beyond the last.
    MW_ERR_RANGE = -2,
    /// A signal that is not 8 aligned bytes.
    MW_ERR_ALIGNMENT = -3,
    /// Memory that this process does not have, may not use so, or that cannot serve this purpose; a proxy address in no import.
    MW_ERR_ADDRESS = -4,
    /// A right that the import does not carry.
    MW_ERR_RIGHTS = -5,
    /// The exporter does not let this process import it, or the token is wrong.
    MW_ERR_REFUSED = -6,
    /// The export was taken back.
    MW_ERR_REVOKED = -7,
    /// A rank, or the launcher, has left or died.
    MW_ERR_GONE = -8,
    /// It did not happen in time.
    MW_ERR_TIMEOUT = -9,
    /// The name is taken, or the thing open already.
    MW_ERR_EXISTS = -10,
    /// Not as things are now: a lock that is not held, a redirection of mapped memory, two calls that exclude each other.
    MW_ERR_STATE = -11,
    /// A limit is reached: of memory, address space, pinned pages, descriptors, or a table of the NIC. The message names it.
    MW_ERR_LIMIT = -12,
    /// A `MAPWIRE_*` variable is not valid, or ranks differ in it.
    MW_ERR_CONFIG = -13,
    /// The operating system refused for another reason.
    MW_ERR_SYSTEM = -14,
    /// A peer or the launcher does not follow the protocol; the job cannot go on.
    MW_ERR_PROTOCOL = -15,
    /// Program, library and launcher do not fit together.
    MW_ERR_VERSION = -16,
    /// A fault of mapwire itself.
    MW_ERR_INTERNAL = -17,
}

use mw_status_t::*;

/// The name of a code, such as "MW_ERR_RANGE"; "MW_ERR_?" for a number that is none. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn mw_status_name(status: i32) -> *const c_char {
    ALL.iter()
        .find(|(code, _)| *code as i32 == status)
        .map_or(c"MW_ERR_?", |(_, name)| *name)
        .as_ptr()
}

macro_rules! named {
    ($($status:ident),* $(,)?) => {
        &[$((
            $status,
            match CStr::from_bytes_with_nul(concat!(stringify!($status), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier holds no NUL"),
            },
        )),*]
    };
}

const ALL: &[(mw_status_t, &CStr)] = named![
    MW_OK,
    MW_ERR_ARGUMENT,
    MW_ERR_RANGE,
    MW_ERR_ALIGNMENT,
    MW_ERR_ADDRESS,
    MW_ERR_RIGHTS,
    MW_ERR_REFUSED,
    MW_ERR_REVOKED,
    MW_ERR_GONE,
    MW_ERR_TIMEOUT,
    MW_ERR_EXISTS,
    MW_ERR_STATE,
    MW_ERR_LIMIT,
    MW_ERR_CONFIG,
    MW_ERR_SYSTEM,
    MW_ERR_PROTOCOL,
    MW_ERR_VERSION,
    MW_ERR_INTERNAL,
];

/// The code of an error.
#[cold]
pub(crate) fn status_of(error: &Error) -> mw_status_t {
    match error {
        Error::Config(_) => MW_ERR_CONFIG,
        Error::Driver(error) => of_driver(error),
        Error::Shared(error) => of_shared(error),
        Error::Memory(error) => of_memory(error),
        Error::Proxy(error) => of_proxy(error),
        Error::OutOfRange { .. } => MW_ERR_RANGE,
        Error::Unaligned(_) => MW_ERR_ALIGNMENT,
        Error::NoRight { .. } => MW_ERR_RIGHTS,
        Error::Revoked { .. } => MW_ERR_REVOKED,
        Error::Deserted { .. } => MW_ERR_GONE,
        Error::InSharedMemory { .. } => MW_ERR_ADDRESS,
        Error::PinnedAlready { .. } => MW_ERR_STATE,
        _ => MW_ERR_INTERNAL,
    }
}

fn of_driver(error: &DriverError) -> mw_status_t {
    match error {
        DriverError::Rendezvous(error) => of_rendezvous(error),
        DriverError::Channel(error) => of_channel(error),
        DriverError::Vmmc(error) => of_vmmc(error),
        DriverError::Nic(error) => of_nic(error),
        DriverError::Command(error) => of_command(error),
        DriverError::Pages(PagesError::Limit(_) | PagesError::LockedMemory { .. }) => MW_ERR_LIMIT,
        DriverError::Pages(PagesError::System(error)) | DriverError::Pinner(error) => of_pin(error),
        DriverError::Pages(PagesError::Nic(error)) => of_nic(error),
        DriverError::Memory(error) => of_memory(error),
        DriverError::Cache(_) => MW_ERR_CONFIG,
        DriverError::NoDescriptor(_)
        | DriverError::PeerBroken {
            breach: mapwire_driver::breach::Breach::NoDescriptor,
            ..
        } => MW_ERR_LIMIT,
        // What a peer sent, or what this process could not write down.
        DriverError::Wire(_) | DriverError::PeerBroken { .. } => MW_ERR_PROTOCOL,
        DriverError::Range(_) | DriverError::NotMapped { .. } => MW_ERR_ADDRESS,
        DriverError::Entropy(_) | DriverError::Thread(_) | DriverError::Trace { .. } => {
            MW_ERR_SYSTEM
        }
        DriverError::PeerGone(_) => MW_ERR_GONE,
        DriverError::Timeout { .. } => MW_ERR_TIMEOUT,
        DriverError::NoSuchRank { .. } => MW_ERR_RANGE,
        DriverError::EmptyExport | DriverError::NoRights => MW_ERR_ARGUMENT,
        DriverError::TooManyOutstanding(_) => MW_ERR_LIMIT,
        DriverError::RedirectsDirect => MW_ERR_STATE,
        DriverError::Shared(error) => of_shared(error),
    }
}

fn of_rendezvous(error: &RendezvousError) -> mw_status_t {
    use mapwire_transport::rendezvous::message::Refusal;
    match error {
        RendezvousError::Unreachable(_)
        | RendezvousError::JobEnded
        | RendezvousError::PeerGone(_) => MW_ERR_GONE,
        RendezvousError::ForeignBroker(_) => MW_ERR_CONFIG,
        RendezvousError::Refused { why, .. } => match why {
            Refusal::Version => MW_ERR_VERSION,
            Refusal::Taken => MW_ERR_EXISTS,
            Refusal::Token | Refusal::Rank | Refusal::Process => MW_ERR_CONFIG,
        },
        RendezvousError::Protocol(_) | RendezvousError::Board(_) => MW_ERR_PROTOCOL,
        RendezvousError::Timeout { .. } => MW_ERR_TIMEOUT,
        RendezvousError::NoSuchPeer { .. } => MW_ERR_RANGE,
        RendezvousError::Os { .. } => MW_ERR_SYSTEM,
    }
}

fn of_channel(error: &ChannelError) -> mw_status_t {
    match error {
        ChannelError::Config(_) => MW_ERR_CONFIG,
        ChannelError::System { .. } => MW_ERR_SYSTEM,
        ChannelError::Mismatch { .. } => MW_ERR_VERSION,
    }
}

fn of_vmmc(error: &VmmcError) -> mw_status_t {
    match error {
        VmmcError::BadName(_) => MW_ERR_ARGUMENT,
        VmmcError::NameTaken(_) => MW_ERR_EXISTS,
        VmmcError::TimedOut { .. } => MW_ERR_TIMEOUT,
        VmmcError::Refused { reason, .. } => of_refusal(*reason),
        VmmcError::PeerGone { .. } => MW_ERR_GONE,
        VmmcError::Malformed { .. } => MW_ERR_PROTOCOL,
    }
}

fn of_proxy(error: &ProxyError) -> mw_status_t {
    match error {
        ProxyError::PastEnd { .. } => MW_ERR_RANGE,
        ProxyError::NoImport(_) | ProxyError::Dropped(_) => MW_ERR_ADDRESS,
        ProxyError::Apart { .. } => MW_ERR_ARGUMENT,
        ProxyError::Full { .. } => MW_ERR_LIMIT,
    }
}

fn of_refusal(refusal: Refusal) -> mw_status_t {
    match refusal {
        Refusal::UnknownExport | Refusal::Revoked => MW_ERR_REVOKED,
        Refusal::WrongKey | Refusal::NotPermitted | Refusal::NoSuchName => MW_ERR_REFUSED,
        Refusal::OutOfRange | Refusal::TooLong => MW_ERR_RANGE,
        Refusal::NoRight => MW_ERR_RIGHTS,
        Refusal::Busy => MW_ERR_LIMIT,
        _ => MW_ERR_REFUSED,
    }
}

fn of_nic(error: &NicError) -> mw_status_t {
    match error {
        NicError::OutOfNicMemory { .. } | NicError::TableFull { .. } => MW_ERR_LIMIT,
        NicError::UnknownExport(_) => MW_ERR_REVOKED,
        NicError::UnknownNode(..) => MW_ERR_RANGE,
        NicError::BadRange { .. } => MW_ERR_ADDRESS,
        // The driver opens its process once, and installs its handlers once.
        NicError::UnknownProcess(_)
        | NicError::ProcessOpen(_)
        | NicError::HandlerTaken(_)
        | NicError::ZeroKey
        | NicError::Translation(_) => MW_ERR_INTERNAL,
    }
}

fn of_command(error: &CommandError) -> mw_status_t {
    match error {
        CommandError::Malformed(_)
        | CommandError::UnknownImport(_)
        | CommandError::NotOpen(_)
        | CommandError::NotAccepted => MW_ERR_INTERNAL,
        CommandError::NotPinned { .. } | CommandError::NoRoom { .. } => MW_ERR_LIMIT,
        CommandError::Revoked(_) => MW_ERR_REVOKED,
        CommandError::OutOfRange { .. } | CommandError::UnknownNode(_) => MW_ERR_RANGE,
        CommandError::NoRight { .. } => MW_ERR_RIGHTS,
        CommandError::UnalignedSignal(_) => MW_ERR_ALIGNMENT,
        CommandError::PeerGone(_) => MW_ERR_GONE,
        CommandError::Refused(refusal) => of_refusal(*refusal),
    }
}

fn of_pin(error: &PinError) -> mw_status_t {
    match error {
        PinError::LockedMemory { .. }
        | PinError::SlotsExhausted { .. }
        | PinError::TooManyRanges { .. } => MW_ERR_LIMIT,
        PinError::NotMapped { .. } => MW_ERR_ADDRESS,
        PinError::NotPinned { .. } | PinError::FrameCount { .. } => MW_ERR_INTERNAL,
        _ => MW_ERR_SYSTEM,
    }
}

fn of_memory(error: &MemoryError) -> mw_status_t {
    match error {
        MemoryError::Zero => MW_ERR_ARGUMENT,
        MemoryError::TooLong { .. }
        | MemoryError::AddressSpace { .. }
        | MemoryError::Descriptors { .. } => MW_ERR_LIMIT,
        MemoryError::TooShort { .. } | MemoryError::NotSealed => MW_ERR_PROTOCOL,
        MemoryError::OutOfRange { .. } => MW_ERR_RANGE,
        MemoryError::Misaligned { .. } => MW_ERR_ALIGNMENT,
        MemoryError::ReadOnly => MW_ERR_RIGHTS,
        MemoryError::NotMapped { .. } => MW_ERR_ADDRESS,
        _ => MW_ERR_SYSTEM,
    }
}

fn of_shared(error: &SharedError) -> mw_status_t {
    match error {
        SharedError::Model(error) => of_model(error),
        SharedError::Config(_) => MW_ERR_CONFIG,
        SharedError::Views(error) => of_views(error),
        SharedError::Protection(error) => match error {
            ProtectionError::OutOfRange { .. } => MW_ERR_INTERNAL,
            ProtectionError::TooManyRanges { .. } | ProtectionError::OutOfMemory { .. } => {
                MW_ERR_LIMIT
            }
            _ => MW_ERR_SYSTEM,
        },
        SharedError::Watch(error) => match error {
            WatchError::TooMany => MW_ERR_LIMIT,
            WatchError::Overlap { .. } => MW_ERR_EXISTS,
            _ => MW_ERR_SYSTEM,
        },
        SharedError::Peer(_) | SharedError::Garbled(_) | SharedError::RankBroken { .. } => {
            MW_ERR_PROTOCOL
        }
        SharedError::RankGone(_) | SharedError::RankClosed(_) => MW_ERR_GONE,
        SharedError::Open => MW_ERR_EXISTS,
        SharedError::NotOpen => MW_ERR_STATE,
        SharedError::TooManyThreads(_) => MW_ERR_LIMIT,
    }
}

fn of_model(error: &mapwire_dsm::Error) -> mw_status_t {
    use mapwire_dsm::Error;
    match error {
        Error::NotShared { .. } => MW_ERR_ADDRESS,
        Error::OutOfMemory { .. } => MW_ERR_LIMIT,
        Error::ZeroBytes => MW_ERR_ARGUMENT,
        Error::UnknownLock { .. } | Error::UnknownBarrier { .. } | Error::UnknownRank { .. } => {
            MW_ERR_RANGE
        }
        Error::UnknownThread { .. } | Error::BadParticipants { .. } => MW_ERR_LIMIT,
        Error::ThreadBusy { .. }
        | Error::LockHeld { .. }
        | Error::LockNotHeld { .. }
        | Error::BarrierFull { .. }
        | Error::BroadcastBusy
        | Error::OtherRoot { .. }
        | _ => MW_ERR_STATE,
    }
}

fn of_views(error: &ViewError) -> mw_status_t {
    match error {
        ViewError::Empty { .. }
        | ViewError::Base { .. }
        | ViewError::TooLong { .. }
        | ViewError::Clash { .. } => MW_ERR_CONFIG,
        ViewError::AddressSpace { .. } | ViewError::TooManyRanges { .. } => MW_ERR_LIMIT,
        ViewError::OutOfRange { .. } => MW_ERR_RANGE,
        ViewError::Memory(error) => of_memory(error),
        _ => MW_ERR_SYSTEM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(status: i32) -> &'static str {
        // SAFETY: the names are constants with a NUL at their end.
        unsafe { CStr::from_ptr(mw_status_name(status)) }
            .to_str()
            .unwrap()
    }

    #[test]
    fn every_code_has_its_name_and_no_two_are_alike() {
        for (index, (status, _)) in ALL.iter().enumerate() {
            assert_eq!(
                *status as i32,
                -(index as i32),
                "the codes run on without a hole"
            );
            assert_eq!(name(*status as i32), format!("{status:?}"));
        }
        assert_eq!(name(1), "MW_ERR_?");
        assert_eq!(name(-(ALL.len() as i32)), "MW_ERR_?");
        assert_eq!(name(i32::MIN), "MW_ERR_?");
    }

    #[test]
    fn an_error_keeps_its_kind_through_the_layers() {
        let of = |error: Error| status_of(&error);
        let timeout = || VmmcError::TimedOut {
            node: mapwire_wire::NodeId(1),
            name: "inbox".to_owned(),
            waited_ms: 5,
        };
        assert_eq!(of(DriverError::from(timeout()).into()), MW_ERR_TIMEOUT);
        assert_eq!(of(Error::Unaligned(3)), MW_ERR_ALIGNMENT);
        assert_eq!(
            of(DriverError::from(CommandError::Refused(Refusal::OutOfRange)).into()),
            MW_ERR_RANGE
        );
        assert_eq!(
            of(SharedError::from(mapwire_dsm::Error::ZeroBytes).into()),
            MW_ERR_ARGUMENT
        );
        assert_eq!(of(MemoryError::Zero.into()), MW_ERR_ARGUMENT);
        assert_eq!(of(SharedError::Open.into()), MW_ERR_EXISTS);
    }
}
