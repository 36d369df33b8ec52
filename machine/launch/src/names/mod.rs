//! Jobs whose processes no common launcher started: they meet by a [store](mapwire_names) of names.
//!
//! A job has a *name*, which the user gives, and an *incarnation*, which the first process that comes draws at random. All but one of its
//! keys hold the incarnation, so that nothing a dead job left is taken for a part of its successor.
//!
//! | key | attached to | value |
//! |---|---|---|
//! | `mapwire/job/NAME` | the job's lease | the `Record`: incarnation, size, the job's lease, release |
//! | `mapwire/run/NAME/ID/claim/N` | its member's lease | the N-th `Claim`: which ranks this member has |
//! | `…/ready/N`, `…/left/N` | the job's lease | the N-th member has seen the claims of all ranks; it has left |
//! | `…/abort` | the job's lease | who ends the job, and why |
//! | `…/value/KEY/RANK` | the job's lease | what a rank put |
//! | `…/fence/F/RANK` | the job's lease | a rank has come to the F-th fence |
//!
//! A *member* is a process that keeps a claim: `mapwire run --names` for the ranks that it starts, or a rank that nothing started. All
//! members keep the job's lease, so that it ends with the last of them, and the last that leaves revokes it.
//!
//! Every value is signed (`signed`) by a key made of the shared secret and the incarnation. So is the job's secret
//! (`Incarnation::secret`), which stands nowhere. Who can write to the store and lacks the secret can end a job, and no more.
//!
//! | module | holds |
//! |---|---|
//! | `record` | what the values say |
//! | `signed` | a store whose values are signed |
//! | `forming` | how members find together |
//! | `session` | a member, on a thread |
//! | `launcher` | the [`Launcher`](crate::Launcher) of ranks |
//! | `jobs` | the jobs in a store, for users |
//! | `lending` | donors of memory, and what is asked of them |
//! | `serving` | servers, and the clients of other hosts that ask for them |

mod forming;
mod jobs;
mod launcher;
mod lending;
mod record;
mod serving;
mod session;
mod signed;
#[cfg(test)]
mod tests;

pub use forming::Wanted;
pub use jobs::{Job, Member, jobs};
pub(crate) use launcher::Names;
pub use lending::{Asking, Donor, Loan, Offer, donors};
pub use record::{Incarnation, JobName};
pub use serving::{FarServer, Serving, VISIT_SIZE, Visiting, servers};
pub use session::{News, Session};
