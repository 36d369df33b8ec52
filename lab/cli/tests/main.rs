//! Tests of the commands of the laboratory.

#[path = "../../../cli/tests/common/mod.rs"]
mod common;
mod lab;
mod lab_study;
mod lab_tables;
mod sim;
mod sim_paper;
