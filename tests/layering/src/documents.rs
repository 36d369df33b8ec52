//! Whether documents name only what is there.

use std::path::Path;

use crate::Violation;

/// A link of a Markdown text: what it shows, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// What it shows.
    pub text: String,
    /// Where it leads: a path from the document, or an address.
    pub target: String,
}

/// The links of a Markdown text, code blocks left out.
#[must_use]
pub fn links(markdown: &str) -> Vec<Link> {
    let mut found = Vec::new();
    // Every second part is a code block.
    for prose in markdown.split("\n```").step_by(2) {
        let mut rest = prose;
        while let Some((before, after)) = rest.split_once("](") {
            rest = after;
            let text = before.rsplit_once('[').map_or("", |(_, text)| text);
            let target = after.split_once(')').map_or(after, |(target, _)| target);
            found.push(Link { text: text.to_owned(), target: target.to_owned() });
        }
    }
    found
}

/// The words of a text that could be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|next: char| !next.is_alphanumeric() && next != '_').filter(|word| !word.is_empty())
}

/// Whether the Rust file `text`, whose name without ending is `stem`, has what a document calls `name`: a function, by its
/// definition; anything else by its name. The name of the file stands for the file.
fn has_name(text: &str, stem: &str, name: &str) -> bool {
    let is_function = |part: &str| part.starts_with(|first: char| first.is_ascii_lowercase());
    name.split("::").all(|part| {
        if part == stem {
            return true;
        }
        let mut before = "";
        words(text).any(|word| {
            let found = word == part && (!is_function(part) || before == "fn");
            before = word;
            found
        })
    })
}

/// The anchor that a heading of a Markdown text gets: lower case, spaces as hyphens, no punctuation.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter_map(|next| match next {
            ' ' => Some('-'),
            '-' | '_' => Some(next),
            _ => next.is_alphanumeric().then(|| next.to_ascii_lowercase()),
        })
        .collect()
}

/// Checks the links of the document `file` of the folder `root`, with the text `markdown`: each leads to a file that is there, seen
/// from the document, and to a heading of it; one that shows a name in code, and leads to a Rust file, finds it in that file.
///
/// # Errors
/// A file that cannot be read.
pub fn check(root: &Path, file: &str, markdown: &str) -> std::io::Result<Vec<Violation>> {
    let mut found = Vec::new();
    let document = root.join(file);
    let folder = document.parent().unwrap_or(root);
    for Link { text, target } in links(markdown) {
        if target.contains("://") {
            continue;
        }
        let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
        let path = if path.is_empty() { document.clone() } else { folder.join(path) };
        let dead = || Violation::DeadLink { file: file.to_owned(), target: target.clone() };
        if !path.exists() {
            found.push(dead());
            continue;
        }
        if !heading.is_empty() {
            let linked = std::fs::read_to_string(&path)?;
            let headings = linked.lines().filter(|line| line.starts_with('#'));
            if !headings.map(anchor).any(|anchor| anchor == heading) {
                found.push(dead());
            }
        }
        let name = text.trim_matches('`');
        let is_code = text.starts_with('`') && !name.contains('/') && target.ends_with(".rs");
        // The file of a folder has the folder's name.
        let module = if path.ends_with("mod.rs") { path.parent() } else { None };
        let stem = module.unwrap_or(&path).file_stem().unwrap_or_default().to_string_lossy();
        if is_code && !has_name(&std::fs::read_to_string(&path)?, &stem, name) {
            found.push(Violation::NotThere { file: file.to_owned(), name: name.to_owned(), target });
        }
    }
    Ok(found)
}

/// The programs that a Markdown text shows: code blocks right behind a line `<!-- FILE -->`. Each with its file.
#[must_use]
pub fn programs(markdown: &str) -> Vec<(&str, &str)> {
    markdown
        .split("\n<!-- ")
        .skip(1)
        .filter_map(|part| {
            let (file, after) = part.split_once(" -->\n```")?;
            let (_, code) = after.split_once('\n')?;
            code.split_once("```").map(|(code, _)| (file, code))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_prose_and_not_in_code() {
        let text = "See [`a::b`](x.rs) and [c](d).\n```rust\nlet e = f[0](g);\n```\n[h](i)";
        let found: Vec<_> = links(text).into_iter().map(|link| link.target).collect();
        assert_eq!(found, ["x.rs", "d", "i"]);
    }

    #[test]
    fn a_function_must_be_defined_there_and_a_type_be_named() {
        let text = "struct Driver; impl Driver { fn poll(&self) { self.send(); } }";
        for (name, is_there) in [
            ("Driver::poll", true),
            ("poll", true),
            ("driver", true),
            ("driver::poll", true),
            ("send", false),
            ("Driver::stop", false),
            ("Engine::poll", false),
        ] {
            assert_eq!(has_name(text, "driver", name), is_there, "{name}");
        }
    }

    #[test]
    fn a_dead_link_and_a_missing_name_are_found() {
        let root = crate::workspace::root();
        let text = "[x](no/such/file.rs) [`no_such_function`](tests/layering/src/lib.rs) [`links`](tests/layering/src/documents.rs)";
        let found = check(&root, "A.md", text).unwrap();
        assert_eq!(
            found,
            [
                Violation::DeadLink { file: "A.md".to_owned(), target: "no/such/file.rs".to_owned() },
                Violation::NotThere {
                    file: "A.md".to_owned(),
                    name: "no_such_function".to_owned(),
                    target: "tests/layering/src/lib.rs".to_owned()
                }
            ]
        );
    }

    #[test]
    fn a_heading_that_is_not_there_is_a_dead_link() {
        let root = crate::workspace::root();
        let text = "# A b: `c`\n[x](#a-b-c) [y](#d) [z](ARCHITECTURE.md#layers) [u](ARCHITECTURE.md#none)";
        let name = std::env::temp_dir().join(format!("mapwire-headings-{}.md", std::process::id()));
        std::fs::write(&name, text).unwrap();
        let found = check(&root, name.to_str().unwrap(), &text[..text.find("[z]").unwrap()]);
        std::fs::remove_file(&name).unwrap();
        let there = check(&root, "README.md", &text[text.find("[z]").unwrap()..]).unwrap();
        let targets = |found: Vec<Violation>| -> Vec<String> {
            let target = |violation| match violation {
                Violation::DeadLink { target, .. } => target,
                other => other.to_string(),
            };
            found.into_iter().map(target).collect()
        };
        assert_eq!(targets(found.unwrap()), ["#d"]);
        assert_eq!(targets(there), ["ARCHITECTURE.md#none"]);
    }

    #[test]
    fn the_programs_behind_their_files_are_found() {
        let text = "x\n<!-- a.c -->\n```c\nint a;\n```\n<!-- note -->\ntext\n```\nb\n```\n<!-- c/d.rs -->\n```rust\nfn e() {}\n```\n";
        assert_eq!(programs(text), [("a.c", "int a;\n"), ("c/d.rs", "fn e() {}\n")]);
    }
}
