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
    let lacks = |attribute| Violation::LacksAttribute { file: file.clone(), attribute };
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

/// Checks a file of a crate in `folder`: in a pure crate no other module of the crate reaches into a type's fields.
#[must_use]
pub fn check_fields(folder: &str, file: &str, text: &str) -> Vec<Violation> {
    if !lies_in(folder, PURE) {
        return Vec::new();
    }
    let code = code_of(text);
    let open = code.lines().filter(|line| {
        let field = line.trim().strip_prefix("pub(crate) ");
        let name = field.and_then(|field| field.split_once(": "));
        name.is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    });
    let violation = |line: &str| Violation::OpenField { file: file.to_owned(), field: line.trim().to_owned() };
    open.map(violation).collect()
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
        assert_eq!(lacking("services/dsm", "#![no_std]\n#![deny(unsafe_code)]"), ["#![forbid(unsafe_code)]"]);
        assert_eq!(lacking("services/dsm", "#![forbid(unsafe_code)]"), ["#![no_std]"]);
    }

    #[test]
    fn an_attribute_in_a_comment_or_under_a_condition_does_not_count() {
        assert_eq!(lacking("firmware/nic", "// #![no_std]\n#![forbid(unsafe_code)]").len(), 1);
        let conditional = "#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]";
        assert_eq!(lacking("firmware/nic", conditional), ["#![no_std]"]);
    }

    #[test]
    fn any_other_crate_must_deny_unsafe_code_or_forbid_it() {
        assert!(lacking("cli", "#![deny(unsafe_code)]").is_empty());
        assert!(lacking("cli", "#![forbid(unsafe_code)]").is_empty());
        assert_eq!(lacking("cli", "fn main() {}"), ["#![deny(unsafe_code)]"]);
    }

    #[test]
    fn fields_of_pure_crates_are_not_open_to_other_modules() {
        let text = "struct A {\n    pub(crate) count: u32,\n}\npub(crate) const B: u32 = 1;\n";
        assert_eq!(check_fields("firmware/nic", "a.rs", text).len(), 1);
        assert!(check_fields("machine/host", "a.rs", text).is_empty());
        let closed = "struct A {\n    count: u32,\n}\nimpl A {\n    pub(crate) fn count(&self) -> u32 {";
        assert!(check_fields("firmware/nic", "a.rs", closed).is_empty());
    }
}
