//! Tests of the global memory.

mod hostile;
mod lying_donor;
mod places;
mod silent_deaths;
mod unsettled;
