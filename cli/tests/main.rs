//! Tests of the command: each runs it, most with programs of its own.

mod capture;
mod commands;
mod common;
mod donors;
mod donors_come_and_go;
mod far;
mod far_shared_file;
mod install;
mod lending;
mod names;
mod ping;
mod programs;
mod run_board;
mod run_ending;
mod run_hosts;
mod run_output;
mod run_start;
mod see;
mod see_allocations;
