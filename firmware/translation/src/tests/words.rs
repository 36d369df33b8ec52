//! Designs in the words of settings, for tests. The crate of that grammar stands below this one, so its files are taken instead.
#![allow(dead_code, unreachable_pub)]

#[path = "../../../../settings/src/design.rs"]
mod design;
#[path = "../../../../settings/src/size.rs"]
mod size;

pub(crate) use design::parse_design;
