//! What can be wrong with files that are imported or exported.

use std::io;

/// Why a file cannot be imported, or a trace not exported.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error("cannot read {file}")]
    Read { file: String, source: io::Error },
    #[error("cannot write")]
    Write(#[from] io::Error),
    #[error("{file}, {place}: {what}")]
    Value { file: String, place: String, what: String },
    #[error("{file}: {what}")]
    File { file: String, what: String },
    #[error(transparent)]
    Trace(#[from] crate::error::ReadError),
    #[error("cannot sort")]
    Sort(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A value as it stands in a file, for an error: its begin, with what cannot be printed escaped.
pub(super) fn shown(value: &[u8]) -> String {
    const MOST: usize = 40;
    let begin = &value[..value.len().min(MOST)];
    let dots = if value.len() > MOST { "…" } else { "" };
    format!("`{}{dots}`", begin.escape_ascii())
}
