//! Where files are opened for writing. A path that a user gives may lead over a link of another user, so the commands leave it to one
//! module, which refuses such links.

use crate::Violation;
use crate::rules::WritingPlace;
use crate::unsafe_code::code_of;

/// What opens, makes or replaces a file by its path.
const CALLS: [&str; 12] = [
    "File::create",
    ".write(true)",
    ".append(true)",
    ".create_new(true)",
    "fs::write(",
    "fs::copy(",
    "fs::rename(",
    "fs::hard_link(",
    "fs::create_dir_all(",
    "OFlags::CREATE",
    "OFlags::TMPFILE",
    "libc::O_CREAT",
];

/// The calls by which a file's text, up to its tests, opens others for writing.
#[must_use]
pub fn calls(text: &str) -> Vec<&'static str> {
    let code = code_of(text);
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let has = |call: &&str| {
        let ends_a_name = |before: &str| before.ends_with(char::is_alphanumeric);
        code.match_indices(*call).any(|(at, _)| call.starts_with('.') || !ends_a_name(&code[..at]))
    };
    let mut found: Vec<_> = CALLS.into_iter().filter(has).collect();
    found.sort_unstable();
    found
}

/// Compares what was found, as file and call, with the list.
#[must_use]
pub fn check(found: &[(String, &'static str)], places: &[WritingPlace]) -> Vec<Violation> {
    let unlisted = found
        .iter()
        .filter(|(file, _)| !places.iter().any(|(place, _)| place == file))
        .map(|(file, call)| Violation::WritesByPath { file: file.clone(), call });
    let stale = places
        .iter()
        .filter(|(place, _)| !found.iter().any(|(file, _)| place == file))
        .map(|(place, _)| Violation::StaleWriting((*place).to_owned()));
    unlisted.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_write_are_found_in_code_alone() {
        for (text, expected) in [
            ("fn f() { std::fs::write(p, b); }", &["fs::write("][..]),
            ("let a = File::create(p); let b = fs::rename(p, q);", &["File::create", "fs::rename("]),
            ("// File::create(p)\nlet a = \"fs::write(\";", &[]),
            ("let a = fs::read(p);", &[]),
            ("let a = WholeFile::create(p);", &[]),
            ("let a = File::options().read(true).write(true).open(p);", &[".write(true)"]),
            ("fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { fs::write(p, b); }\n}\n", &[]),
        ] {
            assert_eq!(calls(text), expected, "{text}");
        }
    }

    #[test]
    fn a_new_place_and_a_stale_one_are_both_found() {
        let found = [("a.rs".to_owned(), "File::create")];
        assert_eq!(
            check(&found, &[("b.rs", "")]),
            [
                Violation::WritesByPath { file: "a.rs".to_owned(), call: "File::create" },
                Violation::StaleWriting("b.rs".to_owned())
            ]
        );
    }
}
