//! Who has how much of what is donated.

use std::collections::BTreeMap;

use mapwire_launch::names::JobName;

/// Pages that a program gets at a time: 64 MiB.
const STEP: u64 = 1 << 14;

/// Pages that it gets at first: 4 MiB. Most have few that leave the RAM.
const FIRST: u64 = 1 << 10;

#[derive(Debug)]
pub(super) struct Books {
    most: u64,
    limit: u64,
    jobs: BTreeMap<JobName, u64>,
}

impl Books {
    /// At most `most` pages, to nobody yet.
    pub(super) fn new(most: u64) -> Self {
        Self { most, limit: most, jobs: BTreeMap::new() }
    }

    pub(super) fn lent(&self) -> u64 {
        self.jobs.values().sum()
    }

    /// A job gets its first pages; false if it has some.
    pub(super) fn begin(&mut self, job: &JobName) -> bool {
        if self.jobs.contains_key(job) {
            return false;
        }
        let pages = FIRST.min(self.limit.saturating_sub(self.lent()));
        self.jobs.insert(job.clone(), pages);
        true
    }

    /// A job gets more, if there is any.
    pub(super) fn want(&mut self, job: &JobName) {
        let more = STEP.min(self.limit.saturating_sub(self.lent()));
        if let Some(pages) = self.jobs.get_mut(job) {
            *pages += more;
        }
    }

    pub(super) fn end(&mut self, job: &JobName) {
        self.jobs.remove(job);
    }

    /// No more than `limit` pages may be lent. If more are, each job gives back its share.
    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit.min(self.most);
        let lent = self.lent();
        if lent > self.limit {
            for pages in self.jobs.values_mut() {
                let share = u128::from(*pages) * u128::from(self.limit) / u128::from(lent);
                *pages = share as u64;
            }
        }
    }

    /// Pages of a job, and whether it may get more.
    pub(super) fn of(&self, job: &JobName) -> (u64, bool) {
        let pages = self.jobs.get(job).copied().unwrap_or(0);
        (pages, self.lent() < self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_lent_than_there_is_and_what_is_given_back_is_there_for_others() {
        let (one, other): (JobName, JobName) = ("one".parse().unwrap(), "other".parse().unwrap());
        let mut books = Books::new(2 * STEP + FIRST);
        assert!(books.begin(&one) && !books.begin(&one));
        assert_eq!(books.of(&one), (FIRST, true));
        books.want(&one);
        books.begin(&other);
        assert_eq!(books.of(&other), (FIRST, true));
        books.want(&other);
        books.want(&other);
        assert_eq!(books.lent(), 2 * STEP + FIRST);
        assert!(!books.of(&other).1);
        books.set_limit(STEP + 1);
        assert!(books.lent() <= STEP + 1 && books.of(&one).0 > books.of(&other).0);
        books.set_limit(u64::MAX);
        books.end(&one);
        books.want(&other);
        assert!(books.of(&other).1);
        books.set_limit(0);
        assert_eq!(books.of(&other), (0, false));
    }
}
