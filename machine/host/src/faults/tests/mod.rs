//! What each way to watch faults promises.

use super::*;

mod conformance;
mod delivery;
