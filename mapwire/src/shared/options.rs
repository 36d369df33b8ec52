//! Options of allocations.

use mapwire_dsm::{AllocOptions as ModelOptions, Error as ModelError, Protocol as ModelProtocol};

use super::error::SharedError;
use crate::config::Coherence;
pub use mapwire_dsm::Unit;

/// Options of [`Shared::alloc_with`](crate::Shared::alloc_with).
///
/// They determine how memory moves between hosts. Where all ranks are on one host they are checked in the same way and have no effect.
///
/// ```
/// use mapwire::{AllocOptions, Unit};
/// let options = AllocOptions::new().unit(Unit::Bytes(64 << 10)).name("grid");
/// # assert_eq!(options.given_name(), Some("grid"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocOptions<'a> {
    coherence: Coherence,
    home: Option<usize>,
    unit: Unit,
    name: Option<&'a str>,
}

impl<'a> AllocOptions<'a> {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self { coherence: Coherence::Auto, home: None, unit: Unit::Auto, name: None }
    }

    /// Sets what keeps it coherent; [`Coherence::Auto`] is the job's way. In an hlrc job an allocation may be sequentially consistent
    /// ([`Coherence::Minipages`]) beside lazy ones. Accesses to it do not synchronise these: a flag in the one does not publish data in the
    /// other. A job of minipages has none of hlrc.
    #[must_use]
    pub const fn coherence(mut self, coherence: Coherence) -> Self {
        self.coherence = coherence;
        self
    }

    /// Under hlrc, the rank that keeps its pages, which are then its own. Otherwise the first rank to touch a page does. It means nothing
    /// elsewhere.
    #[must_use]
    pub const fn home(mut self, rank: usize) -> Self {
        self.home = Some(rank);
        self
    }

    /// With minipages, what of it moves between ranks as one.
    #[must_use]
    pub const fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Its name for people.
    #[must_use]
    pub const fn name(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// The name that was given.
    #[must_use]
    pub const fn given_name(&self) -> Option<&'a str> {
        self.name
    }

    pub(super) const fn given_unit(&self) -> Unit {
        self.unit
    }

    pub(super) const fn given_coherence(&self) -> Coherence {
        self.coherence
    }

    /// Converts to options of the model, in a job of `ranks` ranks whose coherence is `job`.
    ///
    /// # Errors
    /// No bytes, or a unit that does not suit them; a home outside the job.
    pub(super) fn of_model(&self, job: Coherence, ranks: usize, bytes: u64) -> Result<ModelOptions, SharedError> {
        self.unit.of(bytes)?;
        let ranks = u16::try_from(ranks).unwrap_or(u16::MAX);
        let home = self.home.map(|rank| u16::try_from(rank).unwrap_or(u16::MAX));
        if let Some(rank) = home.filter(|&home| home >= ranks) {
            return Err(ModelError::UnknownRank { rank, ranks }.into());
        }
        let protocol = match self.coherence {
            Coherence::Auto => None,
            Coherence::Minipages => Some(ModelProtocol::Minipages),
            Coherence::Hlrc => Some(ModelProtocol::Hlrc),
        };
        let is_lazy = job == Coherence::Hlrc && protocol != Some(ModelProtocol::Minipages);
        Ok(ModelOptions { protocol, home: home.filter(|_| is_lazy), unit: self.unit })
    }
}
