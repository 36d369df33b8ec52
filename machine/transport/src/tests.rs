//! Tests of all transports.

pub(crate) mod conformance;
