//! What a job does: live, at its end, and for collectors of metrics.
//!
//! Ranks, and programs with far memory, publish their figures in memory: ranks in that which their broker shares with them. Whoever may open that memory reads them; nothing is asked of
//! the ranks.
//!
//! | module | holds |
//! |---|---|
//! | [`sample`] | the figures of one rank |
//! | [`jobs`] | the jobs that run on this host |
//! | [`table`] | samples as a table |
//! | [`top`] | `mapwire top` |
//! | [`stats`] | `mapwire stats`: the figures of far memory |
//! | [`exposition`], [`server`] | samples for Prometheus, on loopback |

mod exposition;
mod jobs;
pub(crate) mod sample;
pub(crate) mod server;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod top;

pub(crate) use sample::Sample;
