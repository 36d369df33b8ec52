//! Tests of the programs as commands, on one host and several.

mod commands;
mod common;
mod hosts;
mod jobs;
mod launchers;
