//! Where unsafe code is allowed.

use std::path::{Path, PathBuf};

use crate::Violation;
use crate::rules::UnsafePlace;

/// What stands for a file as a whole in the list of places.
pub const WHOLE_FILE: &str = "file";

/// The text without comments, and with nothing within string literals; lines stay where they are.
#[must_use]
pub fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut depth = 0_u32;
    while let Some(next) = rest.next() {
        let after = rest.peek().copied();
        match (next, after) {
            ('/', Some('*')) => {
                rest.next();
                depth += 1;
            }
            ('*', Some('/')) if depth > 0 => {
                rest.next();
                depth -= 1;
            }
            ('\n', _) => code.push('\n'),
            _ if depth > 0 => {}
            ('/', Some('/')) => while rest.next_if(|&next| next != '\n').is_some() {},
            // A quotation mark as a character is no literal's begin.
            ('\'', Some('"')) => {
                rest.next();
                rest.next();
            }
            ('"', _) => {
                code.push('"');
                let raw_marks = code.trim_end_matches('"').len();
                let marks = raw_mark_count(&code[..raw_marks]);
                skip_literal(&mut rest, marks, &mut code);
                code.push('"');
            }
            (other, _) => code.push(other),
        }
    }
    code
}

/// How many `#` follow the `r` of a raw literal that begins behind `before`; `None` for an ordinary one.
fn raw_mark_count(before: &str) -> Option<usize> {
    let head = before.trim_end_matches('#');
    let begins = head.ends_with('r')
        && !head[..head.len() - 1].ends_with(|before: char| before.is_alphanumeric() && before != 'b' || before == '_');
    begins.then_some(before.len() - head.len())
}

/// Skips to the end of a literal, keeping its line ends.
fn skip_literal(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, raw_marks: Option<usize>, code: &mut String) {
    while let Some(next) = rest.next() {
        match next {
            '\n' => code.push('\n'),
            '\\' if raw_marks.is_none() && rest.next() == Some('\n') => {
                code.push('\n');
            }
            '"' => {
                let mut marks = 0;
                while marks < raw_marks.unwrap_or(0) && rest.next_if_eq(&'#').is_some() {
                    marks += 1;
                }
                if marks == raw_marks.unwrap_or(0) {
                    return;
                }
            }
            _ => {}
        }
    }
}

/// What each attribute that allows unsafe code stands before: `mod name`, `fn name` and so on, or [`WHOLE_FILE`].
#[must_use]
pub fn allowances(text: &str) -> Vec<String> {
    let code = code_of(text);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = code[at..].find('#').map(|start| start + at) {
        let body = code[start + 1..].trim_start();
        let inner = body.starts_with('!');
        let body = body.strip_prefix('!').unwrap_or(body).trim_start();
        if !body.starts_with('[') {
            at = start + 1;
            continue;
        }
        let open = code.len() - body.len();
        let end = end_of_brackets(&code, open);
        let attribute: String = code[open..end].split_whitespace().collect();
        let names = attribute.contains("unsafe_code");
        if names && (attribute.contains("allow(") || attribute.contains("expect(")) {
            found.push(if inner { WHOLE_FILE.to_owned() } else { item_after(&code, end) });
        }
        at = end;
    }
    found
}

/// The place behind the bracket that closes the one at `open`.
fn end_of_brackets(code: &str, open: usize) -> usize {
    let mut depth = 0_u32;
    for (offset, next) in code[open..].char_indices() {
        match next {
            '[' => depth += 1,
            ']' => {
                depth -= 1;
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The first item behind other attributes, as its keyword and name, without how visible it is.
fn item_after(code: &str, mut at: usize) -> String {
    loop {
        let rest = code[at..].trim_start();
        if !rest.starts_with('#') {
            break;
        }
        let open = code.len() - rest.len() + 1;
        at = end_of_brackets(code, open);
    }
    let mut words = code[at..]
        .split(|next: char| !next.is_alphanumeric() && next != '_')
        .filter(|word| !word.is_empty())
        .skip_while(|word| matches!(*word, "pub" | "crate" | "super" | "const" | "async" | "extern"));
    match (words.next(), words.next()) {
        (Some("unsafe"), Some(kind)) => format!("{kind} {}", words.next().unwrap_or_default()),
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        (kind, _) => kind.unwrap_or_default().to_owned(),
    }
}

/// Compares the places found, as (file, item), with those listed. The same place may be found more than once.
#[must_use]
pub fn check(found: &[(String, String)], listed: &[UnsafePlace]) -> Vec<Violation> {
    let is_listed = |file: &str, item: &str| listed.contains(&(file, item));
    let new = found
        .iter()
        .filter(|(file, item)| !is_listed(file, item))
        .map(|(file, item)| Violation::UnsafeAllowed { file: file.clone(), item: item.clone() });
    let stale = listed
        .iter()
        .filter(|(file, item)| !found.iter().any(|(f, i)| f == file && i == item))
        .map(|(file, item)| Violation::StalePlace { file: (*file).to_owned(), item: (*item).to_owned() });
    new.chain(stale).collect()
}

/// All Rust files below `folder`, but for what cargo built there.
///
/// # Errors
/// A folder that cannot be read.
pub fn rust_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code_and_lines_stay() {
        let text = "a // unsafe\n/* unsafe\n /* nested */ unsafe */ b \"unsafe \\\" // \"\nr#\"unsafe \" \"# c '\"' d";
        let code = code_of(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
        for word in ["a", "b", "c", "d"] {
            assert!(code.contains(word), "{word} in {code}");
        }
    }

    #[test]
    fn an_allowance_is_found_with_what_it_stands_before() {
        for (text, item) in [
            ("#[allow(unsafe_code)]\nmod raw;", "mod raw"),
            ("#[allow(unsafe_code)]\npub(crate) mod raw;", "mod raw"),
            ("#[allow(\n    unsafe_code,\n    dead_code\n)]\n#[inline]\npub fn f() {}", "fn f"),
            ("#[expect(unsafe_code)] unsafe impl Send for T {}", "impl Send"),
            ("#[cfg_attr(unix, allow(unsafe_code))]\nconst unsafe fn g() {}", "fn g"),
            ("//! About\n#![allow(unsafe_code)]\n", "file"),
            ("# ! [ allow ( unsafe_code ) ]", "file"),
        ] {
            assert_eq!(allowances(text), [item], "{text}");
        }
    }

    #[test]
    fn what_denies_unsafe_code_or_only_talks_of_it_allows_none() {
        for text in [
            "#![deny(unsafe_code)]",
            "#![forbid(unsafe_code)]",
            "// #[allow(unsafe_code)]\nmod a;",
            "const A: &str = \"#[allow(unsafe_code)]\";",
            "#[allow(unsafe_op_in_unsafe_fn)]\nmod a;",
        ] {
            assert!(allowances(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_new_place_and_a_stale_one_are_both_found() {
        let found = [("a.rs".to_owned(), "mod x".to_owned()), ("a.rs".to_owned(), "mod y".to_owned())];
        assert_eq!(
            check(&found, &[("a.rs", "mod x"), ("b.rs", "file")]),
            [
                Violation::UnsafeAllowed { file: "a.rs".to_owned(), item: "mod y".to_owned() },
                Violation::StalePlace { file: "b.rs".to_owned(), item: "file".to_owned() }
            ]
        );
    }
}
