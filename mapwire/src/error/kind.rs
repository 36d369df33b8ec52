//! The kinds of errors, and which error has which: here and nowhere else.

use core::fmt;

use mapwire_driver::DriverError;
use mapwire_driver::pages::PagesError;
use mapwire_driver::rma::RmaError;
use mapwire_host::faults::{ProtectionError, WatchError};
use mapwire_host::memory::MemoryError;
use mapwire_host::pinning::PinError;
use mapwire_host::views::ViewError;
use mapwire_launch::LaunchError;
use mapwire_launch::doors::MeetingError;
use mapwire_names::NamesError;
use mapwire_nic::{CommandError, NicError};
use mapwire_node::{ExportError, RegisterError};
use mapwire_pager::PagerError;
use mapwire_segment::SegmentError;
use mapwire_segment::heap::HeapError;
use mapwire_segment::sync::SyncError;
use mapwire_transport::board::BoardError;
use mapwire_transport::rendezvous::RendezvousError;
use mapwire_transport::shm::channel::ChannelError;
use mapwire_vmmc::{ProxyError, VmmcError};
use mapwire_wire::Refusal;

use super::Error;
use crate::far::error::FarError;
use crate::shared::error::SharedError;
use ErrorKind as Kind;

/// What kind of failure an [`Error`](enum@crate::Error) is: what a program decides by. The C library has one code for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is invalid: an empty name, a length of 0 where at least 1 is needed, no rights.
    Argument,
    /// A range passes the end of its buffer, export, import or slice; a rank, lock or barrier number is too large.
    Range,
    /// A word is not aligned to its size.
    Alignment,
    /// The memory is not mapped in this process, or cannot serve this purpose; a proxy address names no import.
    Address,
    /// The import does not carry the right.
    Rights,
    /// The exporter does not admit this importer.
    Refused,
    /// The export was revoked.
    Revoked,
    /// A rank or the launcher has left or died.
    Gone,
    /// The time limit passed.
    Timeout,
    /// The name is taken, or the object is open already.
    Exists,
    /// The call does not fit the present state: a lock that is not held, a redirection of mapped memory.
    State,
    /// A limit is reached: memory, address space, pinned pages, descriptors, a table of the NIC.
    Limit,
    /// A setting is invalid, or ranks differ in it.
    Config,
    /// The operating system refused for another reason.
    System,
    /// A peer or the launcher broke the protocol.
    Protocol,
    /// Program, library and launcher are of different versions.
    Version,
    /// A defect of mapwire.
    Internal,
    /// The calling process is a child by `fork` of the one that joined the job or made the thing, and may not use it.
    Forked,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Argument => "invalid argument",
            Self::Range => "out of range",
            Self::Alignment => "not aligned",
            Self::Address => "bad address",
            Self::Rights => "right not granted",
            Self::Refused => "refused by the exporter",
            Self::Revoked => "export revoked",
            Self::Gone => "peer gone",
            Self::Timeout => "timed out",
            Self::Exists => "exists already",
            Self::State => "invalid in this state",
            Self::Limit => "limit reached",
            Self::Config => "invalid setting",
            Self::System => "operating system error",
            Self::Protocol => "protocol violated",
            Self::Version => "versions differ",
            Self::Internal => "internal error",
            Self::Forked => "not in a forked child",
        })
    }
}

impl Error {
    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        of(self)
    }
}

#[cold]
fn of(error: &Error) -> Kind {
    match error {
        Error::Config(_) => Kind::Config,
        Error::Launch(error) => of_launch(error),
        Error::Meeting(error) => of_meeting(error),
        Error::Driver(error) => of_driver(error),
        Error::Shared(error) => of_shared(error),
        Error::Global(_) => Kind::Config,
        Error::GlobalCall(_) => Kind::State,
        Error::Forked(_) => Kind::Forked,
        Error::Memory(error) => of_memory(error),
        Error::Far(error) => of_far(error),
        Error::Proxy(error) => of_proxy(error),
        Error::OutOfRange { .. } => Kind::Range,
        Error::Io(_) => Kind::System,
        Error::Unaligned(_) | Error::UnalignedWord { .. } | Error::Misplaced { .. } => Kind::Alignment,
        Error::NothingAwaited | Error::Overlap { .. } | Error::ReservedName(_) | Error::CallsDiffer { .. } => {
            Kind::Argument
        }
        Error::NoRight { .. } => Kind::Rights,
        Error::Revoked { .. } => Kind::Revoked,
        Error::Partial { cause, .. } => of(cause),
        Error::NotStored { reason, .. } => of_refusal(*reason),
        Error::Deserted { .. } => Kind::Gone,
        Error::InSharedMemory { .. } => Kind::Address,
        Error::PinnedAlready { .. } | Error::CallsOverlap => Kind::State,
    }
}

fn of_driver(error: &DriverError) -> Kind {
    match error {
        DriverError::Rendezvous(error) => of_rendezvous(error),
        DriverError::Channel(error) => of_channel(error),
        DriverError::Vmmc(error) => of_vmmc(error),
        DriverError::Nic(error) => of_nic(error),
        DriverError::Command(error) => of_command(error),
        DriverError::Pages(PagesError::Limit(_) | PagesError::LockedMemory { .. }) => Kind::Limit,
        DriverError::Pages(PagesError::System(error)) | DriverError::Pinner(error) => of_pin(error),
        DriverError::Pages(PagesError::Nic(error)) => of_nic(error),
        DriverError::Memory(error) => of_memory(error),
        DriverError::Cache(_) | DriverError::Net(_) | DriverError::Far(_) => Kind::Config,
        DriverError::NoDescriptor(_)
        | DriverError::PeerBroken { breach: mapwire_driver::breach::Breach::NoDescriptor, .. } => Kind::Limit,
        DriverError::PeerBroken { breach: mapwire_driver::breach::Breach::Silent { .. }, .. } => Kind::Gone,
        // What a peer sent, or what this process could not write down.
        DriverError::Wire(_) | DriverError::PeerBroken { .. } => Kind::Protocol,
        DriverError::Range(_) | DriverError::NotMapped { .. } => Kind::Address,
        DriverError::Entropy(_) | DriverError::Thread(_) | DriverError::Trace { .. } => Kind::System,
        DriverError::EventFd(_) => Kind::Limit,
        DriverError::Rma { error: RmaError::Failed(_) | RmaError::PeerGone(_), .. } => Kind::Gone,
        DriverError::Rma { .. } => Kind::Protocol,
        DriverError::PeerGone(_) | DriverError::Left => Kind::Gone,
        DriverError::Forked(_) => Kind::Forked,
        DriverError::Timeout { .. } => Kind::Timeout,
        DriverError::NoSuchRank { .. } | DriverError::Export(ExportError::ShortLanding { .. }) => Kind::Range,
        DriverError::Export(ExportError::RedirectsDirect) => Kind::State,
        DriverError::Export(_) => Kind::Argument,
        DriverError::TooManyOutstanding(_) => Kind::Limit,
        DriverError::Register(error) => of_registration(error),
        DriverError::NoService(_) => Kind::State,
    }
}

fn of_launch(error: &LaunchError) -> Kind {
    match error {
        LaunchError::Variable { .. }
        | LaunchError::Setting { .. }
        | LaunchError::JobName(_)
        | LaunchError::JobSecret { .. }
        | LaunchError::JobSize { .. }
        | LaunchError::Descriptor { .. }
        | LaunchError::NoExchange { .. }
        | LaunchError::NoLibrary(_) => Kind::Config,
        LaunchError::Protocol { .. } | LaunchError::Stranger { .. } | LaunchError::Forged { .. } => Kind::Protocol,
        LaunchError::Store(error) => of_store(error),
        LaunchError::JobInUse { .. } => Kind::Exists,
        LaunchError::Refused { .. } | LaunchError::Os { .. } => Kind::System,
        LaunchError::Closed | LaunchError::Ended(_) => Kind::Gone,
        LaunchError::Timeout { .. } | LaunchError::Missing { .. } | LaunchError::Late { .. } => Kind::Timeout,
        LaunchError::Spent => Kind::State,
        LaunchError::Differs { what: "mapwire", .. } | LaunchError::JobVersion { .. } => Kind::Version,
        LaunchError::Differs { .. } => Kind::Config,
        LaunchError::Broker(BoardError::Ranks(_)) => Kind::Limit,
        LaunchError::Broker(_) => Kind::System,
        LaunchError::Key(_) | LaunchError::TooLong { .. } | LaunchError::NoRank { .. } => Kind::Internal,
    }
}

fn of_meeting(error: &MeetingError) -> Kind {
    match error {
        MeetingError::Name(_) => Kind::Argument,
        MeetingError::Taken { .. } => Kind::Exists,
        MeetingError::Nobody { .. } | MeetingError::Ended { .. } => Kind::Gone,
        MeetingError::Squatter { .. } | MeetingError::Refused { .. } => Kind::Refused,
        MeetingError::Protocol { .. } => Kind::Protocol,
        MeetingError::Timeout { .. } => Kind::Timeout,
        MeetingError::Board(_) | MeetingError::Os { .. } => Kind::System,
    }
}

fn of_store(error: &NamesError) -> Kind {
    match error {
        NamesError::Address { .. }
        | NamesError::NoSecret { .. }
        | NamesError::Secret { .. }
        | NamesError::NotBuilt { .. }
        | NamesError::WrongSecret { .. } => Kind::Config,
        NamesError::Unreachable { .. } | NamesError::NoLease { .. } => Kind::Gone,
        NamesError::Version { .. } => Kind::Version,
        NamesError::Protocol { .. } => Kind::Protocol,
        NamesError::Full { .. } => Kind::Limit,
        NamesError::Os { .. } => Kind::System,
    }
}

fn of_rendezvous(error: &RendezvousError) -> Kind {
    use mapwire_transport::rendezvous::message::Refusal;
    match error {
        RendezvousError::Unreachable(_) | RendezvousError::JobEnded => Kind::Gone,
        RendezvousError::ForeignBroker(_) => Kind::Config,
        RendezvousError::Refused { why, .. } => match why {
            Refusal::Version => Kind::Version,
            Refusal::Taken => Kind::Exists,
            Refusal::Token | Refusal::Rank | Refusal::Process | Refusal::Stranger | Refusal::User => Kind::Config,
            Refusal::Silent => Kind::Timeout,
        },
        RendezvousError::Protocol(_) | RendezvousError::Board(_) => Kind::Protocol,
        RendezvousError::Timeout { .. } => Kind::Timeout,
        RendezvousError::NoSuchPeer { .. } => Kind::Range,
        RendezvousError::Os { .. } => Kind::System,
    }
}

fn of_channel(error: &ChannelError) -> Kind {
    match error {
        ChannelError::Config(_) => Kind::Config,
        ChannelError::System { .. } => Kind::System,
        ChannelError::Memory(error) => of_memory(error),
        ChannelError::Mismatch { .. } => Kind::Version,
    }
}

fn of_vmmc(error: &VmmcError) -> Kind {
    match error {
        VmmcError::BadName(_) => Kind::Argument,
        VmmcError::NameTaken(_) => Kind::Exists,
        VmmcError::TimedOut { .. } => Kind::Timeout,
        VmmcError::Refused { reason, .. } => of_refusal(*reason),
        VmmcError::PeerGone { .. } => Kind::Gone,
        VmmcError::Malformed { .. } => Kind::Protocol,
    }
}

fn of_proxy(error: &ProxyError) -> Kind {
    match error {
        ProxyError::PastEnd { .. } => Kind::Range,
        ProxyError::NoImport(_) | ProxyError::Dropped(_) => Kind::Address,
        ProxyError::Apart { .. } => Kind::Argument,
        ProxyError::Full { .. } => Kind::Limit,
    }
}

fn of_refusal(refusal: Refusal) -> Kind {
    match refusal {
        Refusal::UnknownExport | Refusal::Revoked => Kind::Revoked,
        Refusal::OutOfRange | Refusal::TooLong => Kind::Range,
        Refusal::NoRight => Kind::Rights,
        Refusal::Busy => Kind::Limit,
        _ => Kind::Refused,
    }
}

fn of_nic(error: &NicError) -> Kind {
    match error {
        NicError::OutOfNicMemory { .. } | NicError::TableFull { .. } => Kind::Limit,
        NicError::UnknownExport(_) => Kind::Revoked,
        NicError::UnknownNode(..) => Kind::Range,
        NicError::BadRange { .. } => Kind::Address,
        // The driver opens its process once, and installs its handlers once.
        NicError::UnknownProcess(_)
        | NicError::ProcessOpen(_)
        | NicError::HandlerTaken(_)
        | NicError::ZeroKey
        | NicError::ZeroEpoch
        | NicError::Translation(_) => Kind::Internal,
    }
}

fn of_command(error: &CommandError) -> Kind {
    match error {
        CommandError::Malformed(_)
        | CommandError::UnknownImport(_)
        | CommandError::NotOpen(_)
        | CommandError::NotAccepted => Kind::Internal,
        CommandError::NotPinned { .. } | CommandError::NoRoom { .. } => Kind::Limit,
        CommandError::Revoked(_) => Kind::Revoked,
        CommandError::OutOfRange { .. } | CommandError::UnknownNode(_) => Kind::Range,
        CommandError::NoRight { .. } => Kind::Rights,
        CommandError::PeerGone(_) => Kind::Gone,
        CommandError::Refused(refusal) => of_refusal(*refusal),
    }
}

fn of_pin(error: &PinError) -> Kind {
    match error {
        PinError::LockedMemory { .. } | PinError::SlotsExhausted { .. } | PinError::TooManyRanges { .. } => Kind::Limit,
        PinError::NotMapped { .. } => Kind::Address,
        PinError::NotPinned { .. } | PinError::FrameCount { .. } => Kind::Internal,
        _ => Kind::System,
    }
}

fn of_memory(error: &MemoryError) -> Kind {
    match error {
        MemoryError::Zero => Kind::Argument,
        MemoryError::TooLong { .. } | MemoryError::Limit { .. } => Kind::Limit,
        MemoryError::TooShort { .. } | MemoryError::NotSealed(_) => Kind::Protocol,
        MemoryError::OutOfRange { .. } => Kind::Range,
        MemoryError::ReadOnly => Kind::Rights,
        MemoryError::NotMapped { .. } => Kind::Address,
        _ => Kind::System,
    }
}

fn of_far(error: &FarError) -> Kind {
    match error {
        FarError::Local { .. } => Kind::Argument,
        FarError::Disk { .. } => Kind::System,
        FarError::Pager(error) => match error {
            PagerError::LimitTooLow { .. } | PagerError::Empty | PagerError::Overlap { .. } | PagerError::File(_) => {
                Kind::Argument
            }
            PagerError::LimitTooHigh { .. }
            | PagerError::TooLarge { .. }
            | PagerError::TooManyRegions { .. }
            | PagerError::Store { .. } => Kind::Limit,
            PagerError::Unaligned { .. } | PagerError::FileOffset { .. } => Kind::Alignment,
            PagerError::OutOfRange { .. } => Kind::Range,
            PagerError::Publish(error) => of_memory(error),
            error if error.is_of_limit() => Kind::Limit,
            _ => Kind::System,
        },
    }
}

fn of_registration(error: &RegisterError) -> Kind {
    match error {
        RegisterError::Taken(_) => Kind::Exists,
        RegisterError::Reserved(_) => Kind::Range,
        RegisterError::NoProcess(_) => Kind::State,
        RegisterError::Nic(error) => of_nic(error),
    }
}

fn of_shared(error: &SharedError) -> Kind {
    match error {
        SharedError::Forked(_) => Kind::Forked,
        SharedError::Model(error) => of_model(error),
        SharedError::Config(_) | SharedError::Provider(_) => Kind::Config,
        SharedError::Views(error) => of_views(error),
        SharedError::Protection(error) => match error {
            ProtectionError::OutOfRange { .. } => Kind::Internal,
            ProtectionError::TooManyRanges { .. } | ProtectionError::OutOfMemory { .. } => Kind::Limit,
            _ => Kind::System,
        },
        SharedError::Watch(error) => match error {
            WatchError::TooMany => Kind::Limit,
            WatchError::Overlap { .. } => Kind::Exists,
            _ => Kind::System,
        },
        SharedError::Peer(_) | SharedError::Garbled(_) | SharedError::NoView(_) | SharedError::RankBroken { .. } => {
            Kind::Protocol
        }
        SharedError::RankGone(_) | SharedError::RankClosed(_) => Kind::Gone,
        SharedError::Unreachable(_, error) => of_driver(error),
        SharedError::Segment(error) => of_segment(error),
        SharedError::Sync(error) => of_sync(error),
        SharedError::Heap(error) => of_heap(error),
        SharedError::Late { .. } => Kind::Timeout,
        SharedError::Open => Kind::Exists,
        SharedError::NotOpen => Kind::State,
        SharedError::Driver(error) => of_driver(error),
        SharedError::TooManyThreads(_) => Kind::Limit,
    }
}

fn of_heap(error: &HeapError) -> Kind {
    match error {
        HeapError::NoBytes | HeapError::TooLong { .. } => Kind::Argument,
        HeapError::OutOfMemory { .. } => Kind::Limit,
        HeapError::Align { .. } => Kind::Alignment,
        HeapError::Outside { .. } | HeapError::NotAllocated { .. } | HeapError::Inside { .. } => Kind::Address,
        HeapError::Differs { .. } => Kind::Config,
        HeapError::Segment(error) => of_segment(error),
        _ => Kind::State,
    }
}

fn of_sync(error: &SyncError) -> Kind {
    match error {
        SyncError::Segment(error) => of_segment(error),
        SyncError::UnknownLock { .. } | SyncError::UnknownBarrier { .. } | SyncError::UnknownRank { .. } => Kind::Range,
        SyncError::HolderEnded { .. } => Kind::Gone,
        SyncError::Misplaced { .. } => Kind::Address,
        SyncError::BadSize { .. } => Kind::Argument,
        SyncError::BadParticipants { .. } | SyncError::TooManyThreads(_) | SyncError::TooHigh { .. } => Kind::Limit,
        _ => Kind::State,
    }
}

fn of_segment(error: &SegmentError) -> Kind {
    match error {
        SegmentError::Base { .. } | SegmentError::Length { .. } | SegmentError::Differs { .. } => Kind::Config,
        SegmentError::Clash { .. } | SegmentError::Elsewhere { .. } => Kind::Exists,
        SegmentError::Ranks(_) | SegmentError::AddressSpace { .. } => Kind::Limit,
        SegmentError::OutOfRange { .. } => Kind::Range,
        SegmentError::RankGone(_) => Kind::Gone,
        SegmentError::Late { .. } => Kind::Timeout,
        SegmentError::Memory(error) => of_memory(error),
        _ => Kind::System,
    }
}

fn of_model(error: &mapwire_dsm::Error) -> Kind {
    use mapwire_dsm::Error;
    match error {
        Error::NotShared { .. } => Kind::Address,
        Error::OutOfMemory { .. } => Kind::Limit,
        Error::ZeroBytes
        | Error::Unit { .. }
        | Error::NoRows { .. }
        | Error::UnitOfRows { .. }
        | Error::OwnRank { .. } => Kind::Argument,
        Error::UnknownLock { .. } | Error::UnknownBarrier { .. } | Error::UnknownRank { .. } => Kind::Range,
        Error::UnknownThread { .. } | Error::BadParticipants { .. } => Kind::Limit,
        _ => Kind::State,
    }
}

fn of_views(error: &ViewError) -> Kind {
    match error {
        ViewError::Empty { .. } | ViewError::Base { .. } | ViewError::TooLong { .. } | ViewError::Clash { .. } => {
            Kind::Config
        }
        ViewError::AddressSpace { .. } | ViewError::TooManyRanges { .. } => Kind::Limit,
        ViewError::OutOfRange { .. } => Kind::Range,
        ViewError::Memory(error) => of_memory(error),
        _ => Kind::System,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_kind_through_the_layers() {
        let of = |error: Error| error.kind();
        let timeout = || VmmcError::TimedOut {
            peer: mapwire_wire::Endpoint::first_of(mapwire_wire::NodeId(1)),
            name: "inbox".to_owned(),
            waited_ms: 5,
        };
        assert_eq!(of(DriverError::from(timeout()).into()), Kind::Timeout);
        assert_eq!(of(Error::Unaligned(3)), Kind::Alignment);
        assert_eq!(of(DriverError::from(CommandError::Refused(Refusal::OutOfRange)).into()), Kind::Range);
        assert_eq!(of(SharedError::from(mapwire_dsm::Error::ZeroBytes).into()), Kind::Argument);
        assert_eq!(of(MemoryError::Zero.into()), Kind::Argument);
        assert_eq!(of(SharedError::Open.into()), Kind::Exists);
    }
}
