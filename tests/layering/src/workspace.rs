//! Reads the manifests.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// In which part of a manifest a dependency stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The crate itself needs it.
    Normal,
    /// Only its tests and examples.
    Test,
    /// Only its build script.
    Build,
}

/// A dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Name of the package, whatever it is called in the crate.
    pub package: String,
    /// For what it is used.
    pub usage: Use,
    /// Whether it is found by its path, so is of this repository.
    pub local: bool,
}

/// A crate of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    /// Name of the package.
    pub name: String,
    /// Folder, from the workspace's root, with `/` between its parts.
    pub folder: String,
    /// What it uses, on any platform and with any feature.
    pub dependencies: Vec<Dependency>,
}

/// Why the manifests cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A manifest is not valid TOML.
    #[error("{} is not valid TOML", path.display())]
    Toml {
        /// Which.
        path: PathBuf,
        /// Why.
        source: toml::de::Error,
    },
    /// A manifest lacks something, or has it in a form that is not known here.
    #[error("{}: {what}", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// The root of this repository.
#[must_use]
pub fn root() -> PathBuf {
    // This crate lies two folders below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads every crate of the workspace at `root`, in the order of their folders.
///
/// # Errors
/// A manifest that is missing, not valid, or of a form that is not known.
pub fn read(root: &Path) -> Result<Vec<Crate>, ReadError> {
    let path = root.join("Cargo.toml");
    let manifest = table(&path)?;
    let form = |what: &str| ReadError::Form { path: path.clone(), what: what.to_owned() };
    let workspace =
        manifest.get("workspace").and_then(Value::as_table).ok_or_else(|| form("there is no [workspace]"))?;
    let members =
        workspace.get("members").and_then(Value::as_array).ok_or_else(|| form("there is no list of members"))?;
    let empty = Table::new();
    let common = workspace.get("dependencies").and_then(Value::as_table).unwrap_or(&empty);
    let mut crates = Vec::new();
    for member in members {
        let member = member.as_str().ok_or_else(|| form("a member is not text"))?;
        for folder in folders(root, member)? {
            let path = root.join(&folder).join("Cargo.toml");
            crates.push(crate_of(&folder, &table(&path)?, common, &path)?);
        }
    }
    crates.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(crates)
}

fn table(path: &Path) -> Result<Table, ReadError> {
    let text = std::fs::read_to_string(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
    text.parse().map_err(|source| ReadError::Toml { path: path.to_owned(), source })
}

/// The folders that a member of the workspace names: itself, or all in a folder.
fn folders(root: &Path, member: &str) -> Result<Vec<String>, ReadError> {
    let Some(parent) = member.strip_suffix("/*") else {
        return Ok(vec![member.to_owned()]);
    };
    let path = root.join(parent);
    let io = |source| ReadError::Io { path: path.clone(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.path().join("Cargo.toml").is_file() {
            found.push(format!("{parent}/{}", entry.file_name().to_string_lossy()));
        }
    }
    Ok(found)
}

/// A crate from its manifest. `common` holds the dependencies that crates inherit from the workspace.
fn crate_of(folder: &str, manifest: &Table, common: &Table, path: &Path) -> Result<Crate, ReadError> {
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str)
        .ok_or_else(|| ReadError::Form { path: path.to_owned(), what: "the package has no name".to_owned() })?;
    let mut dependencies = Vec::new();
    collect(manifest, common, &mut dependencies);
    if let Some(targets) = manifest.get("target").and_then(Value::as_table) {
        for target in targets.values().filter_map(Value::as_table) {
            collect(target, common, &mut dependencies);
        }
    }
    Ok(Crate { name: name.to_owned(), folder: folder.to_owned(), dependencies })
}

/// The dependencies that stand directly in a table.
fn collect(manifest: &Table, common: &Table, into: &mut Vec<Dependency>) {
    for (section, usage) in
        [("dependencies", Use::Normal), ("dev-dependencies", Use::Test), ("build-dependencies", Use::Build)]
    {
        let Some(section) = manifest.get(section).and_then(Value::as_table) else {
            continue;
        };
        for (key, value) in section {
            let inherits = value.get("workspace").and_then(Value::as_bool) == Some(true);
            let value = if inherits { common.get(key).unwrap_or(value) } else { value };
            let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
            into.push(Dependency { package: package.to_owned(), usage, local: value.get("path").is_some() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(manifest: &str, common: &str) -> Crate {
        crate_of("a/b", &manifest.parse().unwrap(), &common.parse().unwrap(), Path::new("a/b/Cargo.toml")).unwrap()
    }

    fn uses(found: &Crate) -> Vec<(&str, Use, bool)> {
        found.dependencies.iter().map(|d| (d.package.as_str(), d.usage, d.local)).collect()
    }

    #[test]
    fn dependencies_are_found_in_every_section_and_form() {
        let found = parse(
            r#"
            package.name = "b"
            [dependencies]
            plain = "1"
            inherited.workspace = true
            [dev-dependencies]
            near = { path = "../near" }
            [build-dependencies]
            maker = "2"
            [target.'cfg(unix)'.dependencies]
            platform = "3"
            [target.'cfg(loom)'.dev-dependencies]
            model = "4"
            "#,
            r#"inherited = { path = "inherited" }"#,
        );
        assert_eq!(
            uses(&found),
            [
                ("inherited", Use::Normal, true),
                ("plain", Use::Normal, false),
                ("near", Use::Test, true),
                ("maker", Use::Build, false),
                ("model", Use::Test, false),
                ("platform", Use::Normal, false),
            ]
        );
    }

    #[test]
    fn a_renamed_dependency_is_known_by_its_own_name() {
        let found = parse(
            r#"
            package.name = "b"
            [dependencies]
            alias = { path = "../machine", package = "mapwire-host" }
            other.workspace = true
            "#,
            r#"other = { version = "1", package = "real" }"#,
        );
        assert_eq!(uses(&found), [("mapwire-host", Use::Normal, true), ("real", Use::Normal, false)]);
    }

    #[test]
    fn a_manifest_without_a_name_is_refused_by_its_path() {
        let error = crate_of("a", &Table::new(), &Table::new(), Path::new("a/Cargo.toml")).unwrap_err();
        assert!(error.to_string().contains("a/Cargo.toml"), "{error}");
    }
}
