//! The protocol step by step: costs in messages, order of actions, errors.

mod allocation;
mod faults;
mod holds;
mod net;
mod prefetch;
mod read_ahead;
mod sets;
mod synchronisation;
