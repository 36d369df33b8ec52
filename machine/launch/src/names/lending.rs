//! Donors of memory in a store, and what is asked of them.
//!
//! A donor offers memory as long as it keeps its lease. Whoever wants memory makes up a job, and asks each donor to join it as a rank; the
//! job's members meet as those of any other.
//!
//! | key | attached to | value |
//! |---|---|---|
//! | `mapwire/donor/ID` | the donor's lease | its release, host, process and pages |
//! | `mapwire/loan/ID/JOB` | the asker's lease | rank, size of the job, pages of all donors that are asked |

use mapwire_names::{SharedSecret, StoreAddress};

use super::record::{JobName, lines_of, offerer_of, offerer_text, random_text};
use super::signed::Notices;
use crate::LaunchError;

const PURPOSE: &str = "mapwire lending";
const DONORS: &str = "mapwire/donor/";
const LOANS: &str = "mapwire/loan/";

/// Pages of a donor at most: 1 TiB.
const MAX_PAGES: u64 = 1 << 28;

/// A process that offers memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donor {
    id: String,
    pub host: String,
    pub process: u32,
    /// Pages of 4,096 bytes that it has for all who ask.
    pub pages: u64,
}

/// What is asked of a donor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// The job that it is to join.
    pub job: JobName,
    pub rank: u32,
    pub size: u32,
    /// Pages of all donors of the job.
    pub pages: u64,
}

/// The donors in a store, those with most memory first. What is not signed by the secret is left out.
///
/// # Errors
/// The store cannot be reached, or has another secret.
pub fn donors(address: &StoreAddress, shared: &SharedSecret) -> Result<Vec<Donor>, LaunchError> {
    let found = Notices::open(address, shared, PURPOSE)?.list(DONORS)?;
    let mut donors: Vec<Donor> = found.iter().filter_map(|(id, value)| Donor::parse(id, value)).collect();
    donors.sort_by(|one, other| (other.pages, &one.id).cmp(&(one.pages, &other.id)));
    Ok(donors)
}

impl Donor {
    /// `None`: of another release, or malformed.
    fn parse(id: &str, bytes: &[u8]) -> Option<Self> {
        let (host, process, mut lines) = offerer_of(bytes)?;
        let donor = Self { id: id.to_owned(), host, process, pages: lines.next()?.parse().ok()? };
        (donor.pages <= MAX_PAGES).then_some(donor)
    }
}

impl Loan {
    fn to_text(&self) -> String {
        format!("{}\n{}\n{}", self.rank, self.size, self.pages)
    }

    fn parse(job: &str, bytes: &[u8]) -> Option<Self> {
        let mut lines = lines_of(bytes)?;
        let loan = Self {
            job: job.parse().ok()?,
            rank: lines.next()?.parse().ok()?,
            size: lines.next()?.parse().ok()?,
            pages: lines.next()?.parse().ok()?,
        };
        (loan.rank < loan.size && loan.pages <= MAX_PAGES << 8).then_some(loan)
    }
}

/// A donor's offer. It ends when it is dropped, or has not been [kept](Self::keep) for some seconds.
#[derive(Debug)]
pub struct Offer {
    notices: Notices,
    id: String,
}

impl Offer {
    /// Offers `pages` pages of this process.
    ///
    /// # Errors
    /// The store cannot be reached, or has another secret.
    pub fn begin(address: &StoreAddress, shared: &SharedSecret, pages: u64) -> Result<Self, LaunchError> {
        let (mut notices, id) = (Notices::open(address, shared, PURPOSE)?, random_text()?);
        notices.set(&[format!("{DONORS}{id}")], &offerer_text(pages))?;
        Ok(Self { notices, id })
    }

    /// Keeps the offer alive, and repeats it if the store has lost it. Call this once a second.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn keep(&mut self) -> Result<(), LaunchError> {
        self.notices.keep()
    }

    /// What is asked of the donor now, also what was asked before. What is not signed by the secret is left out.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn asked(&mut self) -> Result<Vec<Loan>, LaunchError> {
        let found = self.notices.list(&format!("{LOANS}{}/", self.id))?;
        Ok(found.iter().filter_map(|(job, value)| Loan::parse(job, value)).collect())
    }
}

/// What donors are asked for, as long as this is there.
#[derive(Debug)]
pub struct Asking {
    _notices: Notices,
    /// The job that the donors are to join; the asker is its rank 0.
    pub job: JobName,
    pub size: u32,
    /// Pages of all of them.
    pub pages: u64,
}

impl Asking {
    /// Asks these donors for memory. They have some seconds to find it.
    ///
    /// # Errors
    /// The store cannot be reached, or has another secret.
    pub fn begin(address: &StoreAddress, shared: &SharedSecret, donors: &[Donor]) -> Result<Self, LaunchError> {
        let mut notices = Notices::open(address, shared, PURPOSE)?;
        let job: JobName = format!("far.{}", random_text()?).parse()?;
        let size = donors.len() as u32 + 1;
        let pages = donors.iter().map(|donor| donor.pages).sum();
        notices.post((1..).zip(donors).map(|(rank, donor)| {
            let loan = Loan { job: job.clone(), rank, size, pages };
            (format!("{LOANS}{}/{job}", donor.id), loan.to_text())
        }))?;
        Ok(Self { _notices: notices, job, size, pages })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::RELEASE;
    use super::*;

    #[test]
    fn what_a_donor_and_an_asker_write_is_read_back_and_what_makes_no_sense_is_not() {
        let loan = Loan { job: "far.0a".parse().unwrap(), rank: 2, size: 3, pages: 77 };
        let text = loan.to_text();
        assert_eq!(Loan::parse("far.0a", text.as_bytes()), Some(loan));
        for (job, text) in
            [("", "1\n2\n3"), ("x", "2\n2\n3"), ("x", "1\n2"), ("x", "-1\n2\n3"), ("x", "0\n1\n99999999999999")]
        {
            assert_eq!(Loan::parse(job, text.as_bytes()), None, "{job} {text}");
        }
        let donor = Donor::parse("ab", format!("{RELEASE}\nnode1\n12\n34").as_bytes()).unwrap();
        assert_eq!((donor.host.as_str(), donor.process, donor.pages), ("node1", 12, 34));
        for text in ["0\nnode1\n12\n34", "", "\u{1b}"] {
            assert_eq!(Donor::parse("ab", text.as_bytes()), None, "{text}");
        }
    }
}
