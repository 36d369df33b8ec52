//! Crates that are meant to be published carry what the registry and its readers need.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table(file: &Path) -> toml::Table {
    fs::read_to_string(file).unwrap().parse().unwrap()
}

/// The folders of all members: those named, and those below a folder that ends in `/*`.
fn members(workspace: &toml::Table) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for member in workspace["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        match member.strip_suffix("/*") {
            None => found.push(root().join(member)),
            Some(folder) => {
                let entries = fs::read_dir(root().join(folder)).unwrap();
                let folders = entries.map(|entry| entry.unwrap().path());
                found.extend(folders.filter(|folder| folder.join("Cargo.toml").exists()));
            }
        }
    }
    found
}

#[test]
fn published_crates_have_licences_a_readme_and_a_repository() {
    let workspace = table(&root().join("Cargo.toml"));
    let workspace = workspace["workspace"].as_table().unwrap();
    let mut published = 0;
    for folder in members(workspace) {
        let manifest = table(&folder.join("Cargo.toml"));
        let package = manifest["package"].as_table().unwrap();
        if package.get("publish").and_then(toml::Value::as_bool) == Some(false) {
            continue;
        }
        published += 1;
        for key in ["version", "description", "license", "repository", "readme", "keywords"] {
            assert!(package.contains_key(key), "{}: no {key}", folder.display());
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let text = fs::read_to_string(folder.join(licence)).unwrap();
            assert_eq!(text, fs::read_to_string(root().join(licence)).unwrap());
        }
    }
    assert!(published >= 12, "{published}");
    for (name, dependency) in workspace["dependencies"].as_table().unwrap() {
        if dependency.get("path").is_some() {
            let version = dependency.get("version");
            assert_eq!(version, workspace["package"].get("version"), "{name}");
        }
    }
}
