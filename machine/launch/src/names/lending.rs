//! Donors of memory in a store, and what is asked of them.
//!
//! A donor offers memory as long as it keeps its lease. Whoever wants memory makes up a job, and asks each donor to join it as a rank; the
//! job's members meet as those of any other.
//!
//! | key | attached to | value |
//! |---|---|---|
//! | `mapwire/donor/ID` | the donor's lease | its release, host, process and pages |
//! | `mapwire/loan/ID/JOB` | the asker's lease | rank, size of the job, pages of all donors that are asked |

use mapwire_names::{LeaseId, SharedSecret, SigningKey, Store, StoreAddress, open};

use super::forming::random_id;
use super::record::{JobName, RELEASE, host_name, lines_of};
use super::signed;
use crate::LaunchError;

const DONORS: &str = "mapwire/donor/";
const LOANS: &str = "mapwire/loan/";

/// Pages of a donor at most: 1 TiB.
const MAX_PAGES: u64 = 1 << 28;

/// A process that offers memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Donor {
    id: String,
    /// Its host's name.
    pub host: String,
    /// Its process id there.
    pub process: u32,
    /// Pages of 4,096 bytes that it has for all who ask.
    pub pages: u64,
}

/// What is asked of a donor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// The job that it is to join.
    pub job: JobName,
    /// Its rank there.
    pub rank: u32,
    /// Ranks in the job.
    pub size: u32,
    /// Pages of all donors of the job.
    pub pages: u64,
}

fn signing_key(shared: &SharedSecret) -> SigningKey {
    shared.signing_key("mapwire lending", &[])
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The donors in a store, those with most memory first. What is not signed by the secret is left out.
///
/// # Errors
/// The store cannot be reached, or has another secret.
pub fn donors(address: &StoreAddress, shared: &SharedSecret) -> Result<Vec<Donor>, LaunchError> {
    let mut store = open(address, shared)?;
    let signing = signing_key(shared);
    let mut donors = Vec::new();
    for (key, _) in store.list(DONORS)? {
        let value = match signed::get(&mut *store, &signing, &key) {
            Ok(Some(value)) => value,
            Ok(None) | Err(LaunchError::Forged { .. }) => continue,
            Err(error) => return Err(error),
        };
        let id = key.strip_prefix(DONORS).unwrap_or_default();
        donors.extend(Donor::parse(id, &value));
    }
    donors.sort_by(|one, other| (other.pages, &one.id).cmp(&(one.pages, &other.id)));
    Ok(donors)
}

impl Donor {
    /// `None`: of another release, or malformed.
    fn parse(id: &str, bytes: &[u8]) -> Option<Self> {
        let mut lines = lines_of(bytes)?;
        let release = lines.next()?;
        let donor = Self {
            id: id.to_owned(),
            host: lines.next()?.to_owned(),
            process: lines.next()?.parse().ok()?,
            pages: lines.next()?.parse().ok()?,
        };
        (release == RELEASE && donor.pages <= MAX_PAGES).then_some(donor)
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
    store: Box<dyn Store>,
    signing: SigningKey,
    id: String,
    pages: u64,
    lease: LeaseId,
}

impl Offer {
    /// Offers `pages` pages of this process.
    ///
    /// # Errors
    /// The store cannot be reached, or has another secret.
    pub fn begin(address: &StoreAddress, shared: &SharedSecret, pages: u64) -> Result<Self, LaunchError> {
        let mut store = open(address, shared)?;
        let lease = store.grant()?;
        let mut offer = Self { store, signing: signing_key(shared), id: hex(random_id()?), pages, lease };
        offer.show()?;
        Ok(offer)
    }

    fn show(&mut self) -> Result<(), LaunchError> {
        let (host, process) = (host_name(), std::process::id());
        let value = format!("{RELEASE}\n{host}\n{process}\n{}", self.pages);
        let key = format!("{DONORS}{}", self.id);
        signed::create(&mut *self.store, &self.signing, &key, value.as_bytes(), self.lease)?;
        Ok(())
    }

    /// Says that the donor lives, and offers anew if the store has forgotten it. To be called once a second.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn keep(&mut self) -> Result<(), LaunchError> {
        if !self.store.keep(self.lease)? {
            self.lease = self.store.grant()?;
            self.show()?;
        }
        Ok(())
    }

    /// What is asked of the donor now, also what was asked before. What is not signed by the secret is left out.
    ///
    /// # Errors
    /// The store cannot be reached now.
    pub fn asked(&mut self) -> Result<Vec<Loan>, LaunchError> {
        let prefix = format!("{LOANS}{}/", self.id);
        let mut loans = Vec::new();
        for (key, _) in self.store.list(&prefix)? {
            match signed::get(&mut *self.store, &self.signing, &key) {
                Ok(Some(value)) => {
                    let job = key.strip_prefix(&prefix).unwrap_or_default();
                    loans.extend(Loan::parse(job, &value));
                }
                Ok(None) | Err(LaunchError::Forged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(loans)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // Else the lease ends by itself.
        let _ = self.store.revoke(self.lease);
    }
}

/// What donors are asked for, as long as this is there.
#[derive(Debug)]
pub struct Asking {
    store: Box<dyn Store>,
    lease: LeaseId,
    /// The job that the donors are to join; the asker is its rank 0.
    pub job: JobName,
    /// Ranks in the job.
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
        let mut store = open(address, shared)?;
        let signing = signing_key(shared);
        let lease = store.grant()?;
        let job: JobName = format!("far.{}", hex(random_id()?)).parse()?;
        let size = donors.len() as u32 + 1;
        let pages = donors.iter().map(|donor| donor.pages).sum();
        for (rank, donor) in (1..).zip(donors) {
            let loan = Loan { job: job.clone(), rank, size, pages };
            let key = format!("{LOANS}{}/{job}", donor.id);
            signed::create(&mut *store, &signing, &key, loan.to_text().as_bytes(), lease)?;
        }
        Ok(Self { store, lease, job, size, pages })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Else the lease ends by itself.
        let _ = self.store.revoke(self.lease);
    }
}

#[cfg(test)]
mod tests {
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
