//! `include/mapwire.h` is generated from the Rust items, so it cannot drift from them.

use std::path::Path;

/// Set to rewrite the header.
const UPDATE: &str = "MAPWIRE_UPDATE_HEADER";

/// The header, from the Rust items and their documentation.
fn generate() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(folder).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    tidy(&String::from_utf8(text).unwrap())
}

/// Brings comments into a form that even old C compilers accept, one line each if that is enough, and turns the headings of Rust's
/// documentation into words.
fn tidy(text: &str) -> String {
    let mut tidy = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "/*" {
            let comment: Vec<_> = lines
                .by_ref()
                .take_while(|line| line.trim() != "*/")
                .map(|line| match line.trim().trim_start_matches("* ") {
                    "# Errors" => "Errors:",
                    "# Safety" => "Required of the caller:",
                    other => other,
                })
                .collect();
            match comment[..] {
                [only] => tidy += &format!("{indent}/* {only} */\n"),
                _ => {
                    let body: Vec<_> =
                        comment.iter().map(|line| format!("{indent} * {line}").trim_end().to_owned()).collect();
                    tidy += &format!("{indent}/*\n{}\n{indent} */\n", body.join("\n"));
                }
            }
        } else if let Some((code, comment)) = line.split_once(" // ") {
            tidy += &format!("{code} /* {comment} */\n");
        } else if line.ends_with(',') && lines.peek() == Some(&"};") {
            // Old compilers reject a comma behind the last enumerator.
            tidy += &format!("{}\n", line.trim_end_matches(','));
        } else {
            tidy += &format!("{line}\n");
        }
    }
    tidy
}

#[test]
fn the_header_is_what_the_library_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/mapwire.h");
    let fresh = generate();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((number, (kept, fresh))) =
        kept.lines().zip(fresh.lines()).enumerate().find(|(_, (kept, fresh))| kept != fresh)
    {
        panic!(
            "mapwire.h differs from the library in line {}:\n  header:  {kept}\n  library: {fresh}\nlook at the change, then run the test with {UPDATE}=1",
            number + 1
        );
    }
    assert!(kept == fresh, "mapwire.h is too short or too long; run the test with {UPDATE}=1");
}
