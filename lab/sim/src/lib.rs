//! A cluster of mapwire nodes in virtual time.
//!
//! The nodes are the real ones ([`mapwire_node::Node`]); computers, links, programs and time are simulated, and a seed repeats a run to
//! the last event. [`Cluster`] lets things happen. [`Scenario`] draws a cluster, [faults](rules) and programs from a seed, runs them,
//! and [checks] what the project promises; a run that fails can be [shrunk](shrink).
//!
//! [`hardware`] is another kind of cluster: computers whose every step takes the time that a [profile](hardware::Profile) states, to run
//! the machines that [papers](paper) measured; [`computers`] run whole nodes in that manner.
#![forbid(unsafe_code)]

pub mod canary;
pub mod checks;
pub mod cluster;
pub mod computers;
pub mod coverage;
pub mod global;
pub mod hardware;
pub mod hosts;
pub mod paper;
pub mod random;
pub mod replay;
pub mod rpc;
pub mod rules;
pub mod scenario;
mod segments;
pub mod shared;
pub mod shrink;
pub mod vopr;
pub mod workload;

pub use canary::Canary;
pub use cluster::{Cluster, ClusterConfig, ClusterError, Delivery, Interrupt, LinkConfig, Observer, Step, Violation};
pub use coverage::{Condition, Coverage};
pub use random::Random;
pub use replay::{Replay, ReplayError};
pub use rules::{RULES, Rule, RuleError, parse_rules};
pub use scenario::{Outcome, Scenario};
