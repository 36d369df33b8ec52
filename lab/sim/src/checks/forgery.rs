//! What shows a key that does not open its export, or asks for what was not granted, is refused, changes nothing and is counted.

use mapwire_nic::CommandError;
use mapwire_wire::{Endpoint, ImportId, NodeId, Refusal};

use super::{Violation, violation};
use crate::coverage::Condition;

/// What is wrong with forged packets, a kind a line: its name, why it is refused, what that shows, and what it is.
macro_rules! kinds {
    ($($name:ident [$($reason:ident),*] $condition:ident: $about:literal;)*) => {
        /// What is wrong with a forged packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $(#[doc = $about] $name,)*
        }

        impl Kind {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// Why it is refused, where all is as it was when it was sent.
            pub(crate) const fn reasons(self) -> &'static [Refusal] {
                match self {
                    $(Self::$name => &[$(Refusal::$reason),*],)*
                }
            }

            pub(crate) const fn condition(self) -> Condition {
                match self {
                    $(Self::$name => Condition::$condition,)*
                }
            }
        }
    };
}

kinds! {
    Key [WrongKey] ForgedKey: "A wrong key.";
    StaleExport [Revoked] ForgedStaleExport: "An export that is gone, with its key.";
    StaleKey [WrongKey] ForgedStaleKey: "The key of the export that its program had in the place of this one before.";
    OtherKey [WrongKey] ForgedOtherKey: "The key of another export of the node.";
    Stranger [NotPermitted] ForgedStranger: "The right key, which this node was never told: it is not an importer.";
    Range [OutOfRange] ForgedRange: "A place that ends behind the export.";
    Signal [OutOfRange] ForgedSignal: "A signal behind the export.";
    Right [NoRight, NotPermitted] ForgedRight: "A right that this node was not granted, or that the export does not give.";
    Former [NotPermitted] ForgedFormer: "The right key of an export that the former self of this node was granted.";
    Reply [] ForgedReply: "An answer to a fetch under way, with a wrong key. It is no answer to anything, which is said in another way.";
    Part [WrongKey] ForgedPart: "A wrong key in the first packet of several: the others are right, and are not applied either.";
}

impl Kind {
    /// Whether this is why it is refused, where all is as it was when it was sent.
    pub(crate) fn is_exactly_due(self, reason: Refusal) -> bool {
        self.reasons().contains(&reason)
    }

    /// Whether this may be why it was refused. `stands`: its export is still what it was.
    pub(crate) fn is_due(self, reason: Refusal, stands: bool) -> bool {
        let may_have_changed = !stands && self != Self::Reply;
        self.reasons().contains(&reason) || (may_have_changed && AFTER_CHANGE.contains(&reason))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Forged {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) kind: Kind,
    /// The export that it names, by the workload's number.
    pub(crate) target: usize,
    /// That of the import that it was sent by.
    pub(crate) carrier: usize,
    pub(crate) is_refused: bool,
}

/// What a node may refuse a forged packet for that its exporter has changed since: it may have revoked the export, or started anew.
const AFTER_CHANGE: [Refusal; 3] = [Refusal::Revoked, Refusal::UnknownExport, Refusal::WrongKey];

/// At rest: of one node's packets another has refused as many as these, which surely arrived, at the least.
pub(crate) fn were_refused(sent: &[&Forged], refusals: usize) -> Result<(), Violation> {
    let Some(forged) = sent.get(refusals) else { return Ok(()) };
    let (Forged { from, to, .. }, count) = (forged, sent.len());
    let text = format!("{to} has refused {refusals} packets of {from}, which has forged {count}");
    Err(violation("forgery", text))
}

/// A command that its own node must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misuse {
    /// It passes the end of its import.
    Range,
    /// It names an import of another process, or none.
    Import,
    /// Its import does not carry the right.
    Right,
}

impl Misuse {
    /// Whether it failed for this.
    pub(crate) const fn is_due(self, error: &CommandError) -> bool {
        matches!(
            (self, error),
            (Self::Range, CommandError::OutOfRange { .. })
                | (Self::Import, CommandError::UnknownImport(_))
                | (Self::Right, CommandError::NoRight { .. })
        )
    }
}

/// A short send that its own node must refuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misused {
    pub(crate) by: Endpoint,
    pub(crate) what: Misuse,
    pub(crate) import: ImportId,
    /// The export behind it, by the workload's number.
    pub(crate) instance: usize,
}

/// At rest: nothing was said of it.
pub(crate) fn was_misused(misused: &Misused) -> Violation {
    let Misused { by, what, .. } = misused;
    let Endpoint { node, process } = by;
    let text = format!("{node}, {process}: a send that is not allowed was not refused ({what:?})");
    violation("forgery", text)
}
