//! A cluster of mapwire nodes in virtual time.
//!
//! The nodes are the real ones ([`mapwire_node::Node`]); computers, links, programs and time are simulated, and a seed repeats a run to
//! the last event. [`Cluster`] lets things happen. [`Scenario`] draws a cluster, [faults](rules) and programs from a seed, runs them,
//! and [checks] what the project promises; a run that fails can be [shrunk](shrink).
//!
//! The machines that [papers](paper) measured are computers whose every step takes the time that a [profile](hardware::Profile) states:
//! [`computers`] run whole nodes in that manner, [`directory`] the page directory of global memory, [`hosts`] the shared memory. All are put
//! together from the same [parts](hardware).
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "used inside this project only")]

pub mod canary;
pub mod checks;
pub mod cluster;
pub mod computers;
pub mod coverage;
pub mod directory;
pub mod global;
pub mod hardware;
pub mod hosts;
pub mod paper;
pub mod random;
pub mod replay;
pub mod rpc;
pub mod rules;
mod run;
pub mod scenario;
mod segments;
pub mod shared;
pub mod shrink;
pub mod vopr;
pub mod workload;

pub use canary::Canary;
pub use cluster::{Cluster, ClusterConfig, Delivery, Interrupt, LinkConfig, Observer, Step, Violation};
pub use coverage::{Condition, Coverage};
pub use hardware::node::ComputerError;
pub use random::Random;
pub use replay::{Replay, ReplayError};
pub use rules::{RULES, Rule, RuleError, parse_rules};
pub use run::{Drawn, Outcome, Part, RunError, Wanted, Workload};
pub use scenario::Scenario;
