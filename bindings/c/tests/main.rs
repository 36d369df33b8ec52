//! Tests of the C library: programs in C that are compiled and run.

mod common;
mod examples;
mod header;
mod install;
mod leaving;
mod programs;
