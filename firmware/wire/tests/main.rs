//! Tests of the formats on the wire.

mod dissector;
mod golden;
mod hostile;
mod round_trip;
mod vectors;
