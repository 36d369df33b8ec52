//! Records that cannot be studied.

use mapwire_translation::PageRange;
use mapwire_wire::TraceRecord;

use super::{MAX_OPERATION_PAGES, PAGE_ID};

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("{}", told(*record, cause))]
    Record { record: u64, cause: UnstudiedError },
    #[error("record {record}: node {node} touches more than {PAGE_ID} different pages")]
    TooManyPages { record: u64, node: u16 },
}

/// A sentence about the record, which begins with "it" where the record is its subject.
fn told(record: u64, cause: &UnstudiedError) -> String {
    let text = cause.to_string();
    match text.strip_prefix("it ") {
        Some(rest) => format!("record {record} {rest}"),
        None => format!("record {record}: {text}"),
    }
}

/// Whether a record can be studied, whatever came before it.
pub fn check(record: &TraceRecord) -> Result<(), UnstudiedError> {
    if record.is_inline() { Ok(()) } else { range(record.address.get(), record.bytes.get()).map(drop) }
}

pub(super) fn range(address: u64, bytes: u64) -> Result<PageRange, UnstudiedError> {
    let range = PageRange::covering(address, bytes).map_err(|_| UnstudiedError::Outside { address, bytes })?;
    match range.count {
        0..=MAX_OPERATION_PAGES => Ok(range),
        pages => Err(UnstudiedError::TooLong { pages }),
    }
}

/// Why a record cannot be studied, without its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnstudiedError {
    #[error("it is of {bytes} bytes from address {address:#x}, which end outside the 48-bit address space")]
    Outside { address: u64, bytes: u64 },
    #[error("it touches {pages} pages; an operation of more than {MAX_OPERATION_PAGES} is not studied")]
    TooLong { pages: u64 },
}
