//! Checks on the workspace as a whole, which no compiler makes:
//!
//! | module | checks |
//! |---|---|
//! | [`order`] | a crate uses only what stands above it; `lab` never uses the machine; no unknown crate is used |
//! | [`purity`] | pure crates are `no_std`, forbid unsafe code and keep their fields private; every other crate denies unsafe code |
//! | [`unsafe_code`] | unsafe code is allowed only at the places of a list |
//! | [`writing`] | files are opened for writing in one module, and at the places of a list |
//! | [`documents`] | documents name only files and functions that are there |
//!
//! [`workspace`] reads the manifests. Each check takes plain data and gives a list of [`Violation`]s, so that its own tests
//! can show it what is wrong; `tests/workspace.rs` shows it the repository.
#![forbid(unsafe_code)]

pub mod documents;
pub mod order;
pub mod purity;
pub mod rules;
pub mod unsafe_code;
pub mod workspace;
pub mod writing;

/// What is wrong, where, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A crate uses one that stands below it.
    #[error("{user} uses {used}, which stands below it; move what it needs up, or turn the use round")]
    Below {
        /// The crate that uses.
        user: String,
        /// The crate that it uses.
        used: String,
    },
    /// The laboratory reaches the machine.
    #[error(
        "{user} is part of the laboratory and reaches {used} (by way of {by}); the laboratory runs the firmware without this \
         computer"
    )]
    LabUsesMachine {
        /// The crate of the laboratory.
        user: String,
        /// What it must not reach.
        used: String,
        /// Its own dependency through which it does.
        by: String,
    },
    /// A crate of the workspace has no place in the order.
    #[error("{0} has no place in the order of the layers; give it one in tests/layering/src/rules.rs")]
    Unplaced(String),
    /// A crate does not lie where the order says.
    #[error("{name} lies in {folder}, but the order says {expected}")]
    Misplaced {
        /// The crate.
        name: String,
        /// Where it is.
        folder: String,
        /// Where it should be.
        expected: String,
    },
    /// A crate uses one from outside that is not on the list for its kind.
    #[error(
        "{user} uses {used}, which is not on the list of outside crates that {kind} crates may use; weigh it, then list it in \
         tests/layering/src/rules.rs"
    )]
    Unknown {
        /// The crate that uses.
        user: String,
        /// The crate from outside.
        used: String,
        /// Pure or other.
        kind: &'static str,
    },
    /// A crate root lacks an attribute.
    #[error("{file} lacks `{attribute}`")]
    LacksAttribute {
        /// The root file, from the workspace's root.
        file: String,
        /// The attribute.
        attribute: &'static str,
    },
    /// A field of a pure crate is open to other modules.
    #[error(
        "{file} opens the field `{field}` to other modules; give its type a method, or make the whole type a record of `pub` fields"
    )]
    OpenField {
        /// The file, from the workspace's root.
        file: String,
        /// Its line.
        field: String,
    },
    /// Unsafe code is allowed where nobody expects it.
    #[error(
        "{file} allows unsafe code for `{item}`, which is not on the list; do without, or list it in \
         tests/layering/src/rules.rs"
    )]
    UnsafeAllowed {
        /// The file, from the workspace's root.
        file: String,
        /// What the attribute stands before, or `file` for the file as a whole.
        item: String,
    },
    /// A place on the list no longer exists.
    #[error("{file} no longer allows unsafe code for `{item}`; take it off the list in tests/layering/src/rules.rs")]
    StalePlace {
        /// The file, from the workspace's root.
        file: String,
        /// What the list says.
        item: String,
    },
    /// A file is opened for writing by a path, perhaps over a link of another user.
    #[error(
        "{file} uses `{call}`; use `mapwire_console::whole_file::WholeFile`, which follows no links of other users, or say in \
         tests/layering/src/rules.rs why none can be met"
    )]
    WritesByPath {
        /// The file, from the workspace's root.
        file: String,
        /// What it uses.
        call: &'static str,
    },
    /// A place on that list no longer exists.
    #[error("{0} no longer opens files for writing; take it off the list in tests/layering/src/rules.rs")]
    StaleWriting(String),
    /// A document links to a file that is not there.
    #[error("{file} links to {target}, which is not there")]
    DeadLink {
        /// The document.
        file: String,
        /// The link.
        target: String,
    },
    /// A document names something that is not where it says.
    #[error("{file} says that `{name}` is in {target}, where it is not")]
    NotThere {
        /// The document.
        file: String,
        /// The name.
        name: String,
        /// Where it should be.
        target: String,
    },
}
