//! Designs by their names in settings, for tests. The crate of that grammar depends on this one, so its files are included instead.
#![allow(dead_code, unreachable_pub)]

#[path = "../../../../settings/src/design.rs"]
mod design;
#[path = "../../../../settings/src/size.rs"]
mod size;

pub(crate) use design::parse_design;
