//! Tests of both ways to watch faults.

use super::*;

mod conformance;
mod delivery;
