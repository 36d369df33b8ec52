//! The checks, on this repository.

use std::fs;
use std::path::Path;

use mapwire_layering::rules::{COMMANDS, ORDER, UNSAFE_PLACES, WRITING_PLACES};
use mapwire_layering::workspace::{Crate, read, root};
use mapwire_layering::{Violation, documents, order, purity, unsafe_code, writing};

fn crates() -> Vec<Crate> {
    let crates = read(&root()).unwrap();
    // A check of an empty list would pass whatever is wrong.
    assert!(crates.len() >= 10, "only {} crates were found", crates.len());
    crates
}

fn assert_none(violations: &[Violation]) {
    let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "\n{}\n", texts.join("\n"));
}

/// Every Rust file of the crates: its path from the root, and its text.
fn files() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    for found in crates() {
        for path in unsafe_code::rust_files(&root.join(&found.folder)).unwrap() {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
            files.push((name.to_owned(), fs::read_to_string(&path).unwrap()));
        }
    }
    files.sort();
    files.dedup();
    files
}

/// Cargo looks for no tests where a manifest lists them.
#[test]
fn every_file_of_tests_is_in_a_program_of_tests() {
    for found in crates() {
        let folder = root().join(&found.folder);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if !manifest.contains("autotests = false") {
            continue;
        }
        let main = fs::read_to_string(folder.join("tests/main.rs")).unwrap();
        for entry in fs::read_dir(folder.join("tests")).unwrap() {
            let path = entry.unwrap().path();
            let (name, folder_of_its_own) = (path.file_stem().unwrap(), path.join("main.rs"));
            let name = name.to_str().unwrap();
            let is_a_program = name == "main" || manifest.contains(&format!("name = \"{name}\""));
            let is_a_module = main.contains(&format!("mod {name};\n"));
            let has_tests = path.extension().is_some_and(|end| end == "rs") || folder_of_its_own.exists();
            assert!(
                !has_tests || is_a_program || is_a_module,
                "{}: tests/main.rs lacks `mod {name};`, or Cargo.toml a [[test]]",
                path.display()
            );
        }
    }
}

#[test]
fn a_module_with_parts_is_the_mod_file_of_their_folder() {
    let files = files();
    assert!(files.iter().any(|(name, _)| name.ends_with("/mod.rs")));
    let beside: Vec<_> = files
        .iter()
        .filter_map(|(name, _)| Some((name, name.strip_suffix(".rs")?)))
        .filter(|(_, folder)| folder.contains("/src/") && root().join(folder).is_dir())
        .map(|(name, folder)| format!("{name}: move it to {folder}/mod.rs"))
        .collect();
    assert!(beside.is_empty(), "{}", beside.join("\n"));
}

#[test]
fn every_crate_uses_only_what_stands_above_it() {
    assert_none(&order::check(&crates()));
}

#[test]
fn pure_crates_are_without_std_and_every_crate_guards_against_unsafe_code() {
    let root = root();
    let mut violations = Vec::new();
    for found in crates() {
        let roots: Vec<_> = ["src/lib.rs", "src/main.rs"]
            .iter()
            .map(|file| format!("{}/{file}", found.folder))
            .filter(|file| root.join(file).is_file())
            .collect();
        assert!(!roots.is_empty(), "{} has no root file", found.name);
        for file in roots {
            let text = fs::read_to_string(root.join(&file)).unwrap();
            violations.extend(purity::check(&found.folder, &file, &text));
        }
    }
    assert_none(&violations);
}

#[test]
fn fields_of_pure_crates_are_private_to_their_modules() {
    let mut violations = Vec::new();
    for found in crates() {
        let sources = format!("{}/src/", found.folder);
        for (file, text) in files() {
            if file.starts_with(&sources) {
                violations.extend(purity::check_fields(&found.folder, &file, &text));
            }
        }
    }
    assert_none(&violations);
}

#[test]
fn unsafe_code_is_allowed_only_at_the_places_of_the_list() {
    let found: Vec<_> = files()
        .into_iter()
        // This crate's own tests speak of such attributes in literals, which are no code.
        .flat_map(|(file, text)| unsafe_code::allowances(&text).into_iter().map(move |item| (file.clone(), item)))
        .collect();
    assert_none(&unsafe_code::check(&found, UNSAFE_PLACES));
}

#[test]
fn files_are_opened_for_writing_in_one_module_and_at_the_places_of_the_list() {
    let is_test = |file: &str| file.contains("test") || file.ends_with("conformance.rs");
    let of_commands =
        |file: &str| COMMANDS.iter().any(|folder| file.starts_with(folder)) && file.contains("/src/") && !is_test(file);
    let found: Vec<_> = files()
        .into_iter()
        .filter(|(file, _)| of_commands(file))
        .flat_map(|(file, text)| {
            let calls = writing::calls(&text).into_iter();
            calls.map(move |call| (file.clone(), call))
        })
        .collect();
    assert_none(&writing::check(&found, WRITING_PLACES));
}

#[test]
fn the_order_names_the_folders_that_are_there() {
    // A crate that was renamed would leave its place empty, and the rule without effect.
    let root = root();
    for place in ORDER.iter().filter(|place| root.join(place.folder).is_dir()) {
        let manifest = Path::new(place.folder).join("Cargo.toml");
        let text = fs::read_to_string(root.join(&manifest)).unwrap();
        assert!(
            text.contains(&format!("name = \"{}\"", place.name)),
            "{} is not of {}",
            manifest.display(),
            place.name
        );
    }
}

/// The documents at the root and in `docs/`: their paths from the root, and their texts.
fn documents_of(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["", "docs/"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                let file = format!("{folder}{name}");
                let text = fs::read_to_string(root.join(&file)).unwrap();
                found.push((file, text));
            }
        }
    }
    found
}

#[test]
fn documents_name_only_what_is_there() {
    let root = root();
    let mut violations = Vec::new();
    let mut links = 0;
    for (file, text) in documents_of(&root) {
        links += documents::links(&text).len();
        violations.extend(documents::check(&root, &file, &text).unwrap());
    }
    assert!(links > 100, "only {links} links were found");
    assert_none(&violations);
}

#[test]
fn documents_show_the_example_programs_as_they_are() {
    let root = root();
    let mut shown = Vec::new();
    for (file, text) in documents_of(&root) {
        for (program, code) in documents::programs(&text) {
            let example = fs::read_to_string(root.join(program)).unwrap();
            assert_eq!(code, example, "{program} in {file}");
            shown.push(program.to_owned());
        }
    }
    assert!(shown.len() >= 3, "only {shown:?} are shown");
}
