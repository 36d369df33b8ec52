//! Jobs over several hosts.
//!
//! `mapwire run --hosts` starts an *agent* on each host, by a command that the user can choose (`ssh {host}`), and talks with it over
//! the agent's standard input and output: no port is opened, and the job's secret stands in no command line or variable. An agent
//! is the launcher of the ranks of its host, with a broker of their own. What the brokers tell each other passes through the
//! launcher that the user started, the *head*: cards and states of ranks. Output, ends of ranks and signals take the same way. Data
//! goes from rank to rank.
//!
//! | module | holds |
//! |---|---|
//! | [`hostfile`] | which hosts, and how many ranks each may have |
//! | [`plan`] | which ranks run where |
//! | [`frame`] | what head and agents tell each other |
//! | [`connection`] | either end of that talk |
//! | [`command`] | the command that starts an agent |
//! | [`peer`] | one agent, as the head sees it |
//! | [`stdin`], [`files`] | standard input to rank 0; files of ranks for a trace |
//! | [`clock`] | how far the clock of a host is from the head's |
//! | [`head`] | the head's event loop |
//! | [`agent`] | `mapwire agent` |
//! | [`uplink`] | the agent's way to the head |

pub(crate) mod agent;
mod clock;
mod command;
mod connection;
mod files;
mod frame;
mod head;
mod hostfile;
mod peer;
mod plan;
mod stdin;
mod uplink;

pub(super) use command::Template;
pub(super) use files::clock_of;
pub(super) use frame::{Message, frames_of};
pub(super) use head::{Spread, run};
pub(super) use hostfile::{of_file, of_option};
pub(super) use plan::Plan;
pub(super) use uplink::Uplink;
