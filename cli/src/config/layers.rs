//! Where an option's text comes from.

use std::collections::BTreeMap;
use std::env::VarError;
use std::path::{Path, PathBuf};

use super::options::{JobOption, JobOptions, OPTIONS, find};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration file {}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("the configuration file {} is not valid TOML", file.display())]
    Toml { file: PathBuf, source: toml::de::Error },
    #[error(
        "{key} in {} is not an option of mapwire; the table [run] may hold {known}",
        file.display()
    )]
    UnknownKey { file: PathBuf, key: String, known: String },
    #[error("{key} in {} must be text, a number or true/false", file.display())]
    Kind { file: PathBuf, key: String },
    #[error("{variable} is not valid UTF-8")]
    Utf8 { variable: String },
    #[error("{source_name}: {why}")]
    Value { source_name: String, why: String },
}

/// The texts of all options with their sources, by their keys.
#[derive(Default)]
pub(crate) struct Layers {
    found: BTreeMap<&'static str, (String, String)>,
}

/// `./mapwire.toml`, else the user's own.
fn usual_file() -> Option<PathBuf> {
    let here = PathBuf::from("mapwire.toml");
    if here.exists() {
        return Some(here);
    }
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    let users = base.join("mapwire/config.toml");
    users.exists().then_some(users)
}

impl Layers {
    /// Reads all layers. `file` is the one that the user named, if any; it must exist.
    pub(crate) fn read(options: &JobOptions, file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut layers = Self::default();
        if let Some(file) = file.map(Path::to_owned).or_else(usual_file) {
            let text = std::fs::read_to_string(&file);
            let text = text.map_err(|source| ConfigError::Read { file: file.clone(), source })?;
            layers.add_file(&file, &text)?;
        }
        layers.add_variables(|name| std::env::var(name))?;
        layers.add_flags(|option| options.get(option.key));
        Ok(layers)
    }

    fn add(&mut self, option: &JobOption, text: &str, source: String) {
        self.found.insert(option.key, (text.to_owned(), source));
    }

    fn add_file(&mut self, file: &Path, text: &str) -> Result<(), ConfigError> {
        let table: toml::Table = text.parse().map_err(|source| ConfigError::Toml { file: file.into(), source })?;
        let unknown = |key: String| ConfigError::UnknownKey {
            file: file.into(),
            key,
            known: OPTIONS.iter().map(|o| o.key).collect::<Vec<_>>().join(", "),
        };
        for (section, values) in &table {
            let (true, toml::Value::Table(values)) = (section == "run", values) else {
                return Err(unknown(section.clone()));
            };
            for (key, value) in values {
                let option = find(key).ok_or_else(|| unknown(format!("run.{key}")))?;
                let text = match value {
                    toml::Value::String(text) => text.clone(),
                    toml::Value::Integer(number) => number.to_string(),
                    toml::Value::Float(number) => number.to_string(),
                    toml::Value::Boolean(yes) => yes.to_string(),
                    _ => return Err(ConfigError::Kind { file: file.into(), key: key.clone() }),
                };
                self.add(option, &text, format!("{key} in {}", file.display()));
            }
        }
        Ok(())
    }

    fn add_variables(&mut self, variable: impl Fn(&str) -> Result<String, VarError>) -> Result<(), ConfigError> {
        for option in &OPTIONS {
            let name = option.variable();
            match variable(&name) {
                Ok(text) if !text.is_empty() => self.add(option, &text, name),
                Ok(_) | Err(VarError::NotPresent) => {}
                Err(VarError::NotUnicode(_)) => return Err(ConfigError::Utf8 { variable: name }),
            }
        }
        Ok(())
    }

    fn add_flags<'a>(&mut self, given: impl Fn(&JobOption) -> Option<&'a str>) {
        for option in &OPTIONS {
            if let Some(text) = given(option) {
                self.add(option, text, option.flag());
            }
        }
    }

    /// The text of an option and its source, if any layer or the default gives one.
    pub(super) fn get(&self, key: &str) -> Option<(&str, &str)> {
        match self.found.get(key) {
            Some((text, source)) => Some((text, source)),
            None => Some((find(key)?.default?, "default")),
        }
    }

    /// Key, value if one is set, and source, of all options.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, Option<&str>, &str)> {
        OPTIONS.iter().map(|option| match self.get(option.key) {
            Some((text, source)) => (option.key, Some(text), source),
            None => (option.key, None, "not set"),
        })
    }

    #[cfg(test)]
    pub(super) fn of(key: &str, text: &str) -> Self {
        let mut layers = Self::default();
        layers.add_flags(|option| (option.key == key).then_some(text));
        layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_variable_is_warned_of_as_unknown() {
        let names = OPTIONS.iter().map(|option| option.variable().into());
        assert!(mapwire::environment::unknown_variables(names).is_empty());
    }

    #[test]
    fn a_flag_beats_a_variable_beats_the_file_beats_the_default() {
        let mut layers = Layers::default();
        layers.add_file(Path::new("f.toml"), "[run]\nwait = \"event\"\nviews = 4\nshared = \"1G\"\n").unwrap();
        let variables = |name: &str| match name {
            "MAPWIRE_WAIT" => Ok("poll".into()),
            "MAPWIRE_VIEWS" => Ok("8".into()),
            "MAPWIRE_BIND" => Ok(String::new()),
            _ => Err(VarError::NotPresent),
        };
        layers.add_variables(variables).unwrap();
        layers.add_flags(|option| (option.key == "wait").then_some("adaptive"));
        assert_eq!(layers.get("wait"), Some(("adaptive", "--wait")));
        assert_eq!(layers.get("views"), Some(("8", "MAPWIRE_VIEWS")));
        assert_eq!(layers.get("shared"), Some(("1G", "shared in f.toml")));
        assert_eq!(layers.get("bind"), Some(("none", "default")));
        assert_eq!(layers.get("timeout"), None);
    }
}
