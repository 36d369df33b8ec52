//! Settings that are one of a few words.

use core::fmt;

/// A word that is not among those that a setting can be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {found:?}: use {legal}")]
pub struct ChoiceError {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    /// The words, and where they are set.
    pub(crate) legal: &'static str,
}

/// The value that prints as `word`.
pub(crate) fn choose<T: Copy + fmt::Display>(
    all: &[T],
    word: &str,
    what: &'static str,
    legal: &'static str,
) -> Result<T, ChoiceError> {
    let found = all.iter().find(|value| value.to_string() == word);
    found.copied().ok_or_else(|| ChoiceError { what, found: word.to_owned(), legal })
}
