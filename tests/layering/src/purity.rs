//! What the root of a crate must say.

use crate::Violation;
use crate::order::lies_in;
use crate::rules::PURE;
use crate::unsafe_code::code_of;

/// Checks the root file (`src/lib.rs` or `src/main.rs`) of a crate in `folder`: a pure crate is `no_std` and forbids unsafe
/// code; any other denies it, so that whoever needs it must ask for it by an attribute.
#[must_use]
pub fn check(folder: &str, file: &str, text: &str) -> Vec<Violation> {
    let (file, code) = (file.to_owned(), code_of(text));
    let says = |attribute: &str| code.lines().any(|line| line.trim() == attribute);
    let lacks = |attribute| Violation::LacksAttribute {
        file: file.clone(),
        attribute,
    };
    let mut found = Vec::new();
    if lies_in(folder, PURE) {
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !says(attribute) {
                found.push(lacks(attribute));
            }
        }
    } else if !says("#![deny(unsafe_code)]") && !says("#![forbid(unsafe_code)]") {
        found.push(lacks("#![deny(unsafe_code)]"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(folder: &str, text: &str) -> Vec<&'static str> {
        check(folder, "lib.rs", text)
            .into_iter()
            .map(|violation| match violation {
                Violation::LacksAttribute { attribute, .. } => attribute,
                other => panic!("{other}"),
            })
            .collect()
    }

    #[test]
    fn a_pure_crate_must_be_without_std_and_forbid_unsafe_code() {
        let good = "//! About\n#![no_std]\n#![forbid(unsafe_code)]\n";
        assert!(lacking("firmware/wire", good).is_empty());
        assert_eq!(
            lacking("services/dsm", "#![no_std]\n#![deny(unsafe_code)]"),
            ["#![forbid(unsafe_code)]"]
        );
        assert_eq!(
            lacking("services/dsm", "#![forbid(unsafe_code)]"),
            ["#![no_std]"]
        );
    }

    #[test]
    fn an_attribute_in_a_comment_or_under_a_condition_does_not_count() {
        assert_eq!(
            lacking("firmware/nic", "// #![no_std]\n#![forbid(unsafe_code)]").len(),
            1
        );
        let conditional = "#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]";
        assert_eq!(lacking("firmware/nic", conditional), ["#![no_std]"]);
    }

    #[test]
    fn any_other_crate_must_deny_unsafe_code_or_forbid_it() {
        assert!(lacking("cli", "#![deny(unsafe_code)]").is_empty());
        assert!(lacking("cli", "#![forbid(unsafe_code)]").is_empty());
        assert_eq!(lacking("cli", "fn main() {}"), ["#![deny(unsafe_code)]"]);
    }
}
