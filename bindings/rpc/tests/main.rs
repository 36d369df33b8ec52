//! Tests of calls by programs in C.

mod children;
mod common;
mod dispatch;
mod hosts;
mod install;
mod programs;
mod rpcbind;
mod sessions;
