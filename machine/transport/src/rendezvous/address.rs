//! The name and the key of a job, as the environment carries them.

use std::fmt;
use std::str::FromStr;

use crate::local::{Failure, is_own, random};

/// Address of a job's broker, and the token that admits to it: `<32 hex digits>:<32 hex digits>`, and behind another colon the user
/// whose process the broker is, where that may be [another one](Self::of_user).
///
/// The text form holds the token, so it belongs in the environment of the job's own processes and
/// nowhere else; the `Debug` form leaves the token out.
#[derive(Clone, PartialEq, Eq)]
pub struct JobAddress {
    name: [u8; 16],
    token: [u8; 16],
    /// User who may run the broker, besides this one and root.
    user: Option<u32>,
}

/// The text is not a job address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is not a job address (two numbers of 32 hexadecimal digits joined by a colon); \
         it is set by `mapwire run`, unset it to run as a job of one rank", variable = JobAddress::VARIABLE)]
pub struct JobAddressError;

impl JobAddress {
    /// The environment variable that carries the address to the ranks.
    pub const VARIABLE: &'static str = "MAPWIRE_JOB";

    /// Draws a fresh name and token.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn random() -> Result<Self, Failure> {
        Ok(Self { name: random()?, token: random()?, user: None })
    }

    /// The same address, for a process that knows from elsewhere that its broker belongs to user `user`.
    #[must_use]
    pub fn of_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Whether a broker of `user` is trusted.
    pub(super) fn trusts(&self, user: u32) -> bool {
        is_own(user) || self.user == Some(user)
    }

    pub(super) fn socket(&self) -> String {
        format!("mapwire-{}", hex(self.name))
    }

    pub(super) fn token(&self) -> &[u8; 16] {
        &self.token
    }

    /// Compares in time that does not depend on where the first difference is.
    pub(super) fn admits(&self, token: &[u8; 16]) -> bool {
        self.token.iter().zip(token).fold(0, |d, (a, b)| d | (a ^ b)) == 0
    }
}

/// 32 hexadecimal digits.
#[must_use]
pub fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Reads what [`hex`] writes.
#[must_use]
pub fn unhex(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex).map(u128::to_be_bytes)
}

impl fmt::Display for JobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", hex(self.name), hex(self.token))?;
        match self.user {
            Some(user) => write!(f, ":{user}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for JobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobAddress({}:…)", hex(self.name))
    }
}

impl FromStr for JobAddress {
    type Err = JobAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, token) = text.split_once(':').ok_or(JobAddressError)?;
        let (token, user) = match token.split_once(':') {
            Some((token, user)) => (token, Some(user.parse().map_err(|_| JobAddressError)?)),
            None => (token, None),
        };
        Ok(Self { name: unhex(name).ok_or(JobAddressError)?, token: unhex(token).ok_or(JobAddressError)?, user })
    }
}
