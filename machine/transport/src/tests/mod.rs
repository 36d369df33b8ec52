//! Tests of all transports.

pub(crate) mod conformance;
mod toy;
