//! Tests of the global memory.

mod hostile;
mod places;
mod silent_deaths;
mod unsettled;
