//! Where donors are found.

use core::time::Duration;
use std::path::PathBuf;

use mapwire_launch::names::{Asking, Donor, donors};
use mapwire_launch::{LaunchError, NamedJob};
use mapwire_names::{SharedSecret, StoreAddress};

use super::placement::DirectoryPlacement;
use super::session::Session;
use crate::error::Result;

/// Donors of a process, at most.
const MOST_DONORS: usize = 16;

/// How long donors have to come.
const MEETING: Duration = Duration::from_secs(10);

/// Where donors are found, and what they are for.
#[derive(Clone, Debug)]
pub struct Lenders {
    /// The store of names in which donors say that they are there.
    pub store: StoreAddress,
    /// The file of the secret.
    pub secret_file: PathBuf,
    /// Donors that have each page: 1, and the disk has it as well; or 2, and the disk has it only where donors do not.
    pub copies: u8,
    /// Where this process's own part of the page directory is.
    pub directory: DirectoryPlacement,
}

impl Lenders {
    /// The donors that are there now, those with most memory first.
    ///
    /// # Errors
    /// The store cannot be reached, or the secret cannot be read.
    pub fn donors(&self) -> Result<Vec<Donor>> {
        let shared = SharedSecret::read(&self.secret_file).map_err(LaunchError::from)?;
        Ok(donors(&self.store, &shared)?)
    }

    /// Asks donors for memory, and meets them; `None`: there are fewer than copies.
    pub(super) fn meet(&self) -> Result<Option<Session>> {
        let shared = SharedSecret::read(&self.secret_file).map_err(LaunchError::from)?;
        let mut found = donors(&self.store, &shared)?;
        found.truncate(MOST_DONORS);
        if found.len() < usize::from(self.copies) {
            return Ok(None);
        }
        let asking = Asking::begin(&self.store, &shared, &found)?;
        let job = NamedJob {
            name: asking.job.clone(),
            store: self.store.clone(),
            secret_file: self.secret_file.clone(),
            size: asking.size,
            rank: Some(0),
            incarnation: None,
        };
        Session::meet(&job, MEETING, asking.pages, self.directory).map(Some)
    }
}
