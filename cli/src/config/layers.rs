//! Where an option's text comes from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::args::JobOptions;

/// One option: its key in the file, its variable, its default. `None` leaves the choice to each
/// rank, or asks for nothing.
pub(super) struct OptionRow {
    pub(super) key: &'static str,
    pub(super) variable: &'static str,
    default: Option<&'static str>,
    flag: &'static str,
}

const fn row(
    key: &'static str,
    variable: &'static str,
    flag: &'static str,
    default: Option<&'static str>,
) -> OptionRow {
    OptionRow { key, variable, default, flag }
}

/// All options, in the order in which `mapwire config` prints them.
pub(super) const OPTIONS: &[OptionRow] = &[
    row("ranks", "MAPWIRE_RANKS", "-n", None),
    row("transport", "MAPWIRE_TRANSPORT", "--transport", Some("shm")),
    row("addresses", "MAPWIRE_ADDRESSES", "--addresses", None),
    row("insecure", "MAPWIRE_INSECURE", "--insecure", Some("false")),
    row("wait", "MAPWIRE_WAIT", "--wait", Some("adaptive")),
    row("path", "MAPWIRE_PATH", "--path", Some("direct")),
    row("faults", "MAPWIRE_FAULTS", "--faults", None),
    row("pinner", "MAPWIRE_PINNER", "--pinner", None),
    row("pin_limit", "MAPWIRE_PIN_LIMIT", "--pin-limit", None),
    row("shared", "MAPWIRE_SHARED", "--shared", Some("4G")),
    row("views", "MAPWIRE_VIEWS", "--views", Some("32")),
    row("translation", "MAPWIRE_TRANSLATION", "--translation", Some("hierarchical")),
    row("policy", "MAPWIRE_POLICY", "--policy", Some("lru")),
    row("prepin", "MAPWIRE_PREPIN", "--prepin", Some("1")),
    row("timeout", "MAPWIRE_TIMEOUT", "--timeout", None),
    row("stop_grace", "MAPWIRE_STOP_GRACE", "--stop-grace", Some("10")),
    row("bind", "MAPWIRE_BIND", "--bind", Some("none")),
    row("wdir", "MAPWIRE_WDIR", "--wdir", None),
    row("tag", "MAPWIRE_TAG", "--no-tag", Some("true")),
    row("stdout", "MAPWIRE_STDOUT", "--stdout", Some("auto")),
];

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration file {}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("the configuration file {} is not valid TOML", file.display())]
    Toml { file: PathBuf, source: toml::de::Error },
    #[error(
        "{key} in {} is no option of mapwire; the table [run] may hold {known}",
        file.display()
    )]
    UnknownKey { file: PathBuf, key: String, known: String },
    #[error("{key} in {} must be text, a number or true/false", file.display())]
    Kind { file: PathBuf, key: String },
    #[error("{variable} is not valid UTF-8")]
    Utf8 { variable: &'static str },
    #[error("{source_name}: {why}")]
    Value { source_name: String, why: String },
}

/// The texts of all options with their sources.
pub(crate) struct Layers {
    found: BTreeMap<&'static str, (String, String)>,
}

fn flags(options: &JobOptions) -> Vec<(&'static str, Option<&str>)> {
    vec![
        ("ranks", options.ranks.as_deref()),
        ("transport", options.transport.as_deref()),
        ("addresses", options.addresses.as_deref()),
        ("insecure", options.insecure.then_some("true")),
        ("wait", options.wait.as_deref()),
        ("path", options.path.as_deref()),
        ("faults", options.faults.as_deref()),
        ("pinner", options.pinner.as_deref()),
        ("pin_limit", options.pin_limit.as_deref()),
        ("shared", options.shared.as_deref()),
        ("views", options.views.as_deref()),
        ("translation", options.translation.as_deref()),
        ("policy", options.policy.as_deref()),
        ("prepin", options.prepin.as_deref()),
        ("timeout", options.timeout.as_deref()),
        ("stop_grace", options.stop_grace.as_deref()),
        ("bind", options.bind.as_deref()),
        ("wdir", options.wdir.as_deref()),
        ("tag", options.no_tag.then_some("false")),
        ("stdout", options.stdout.as_deref()),
    ]
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

fn read_file(file: &Path) -> Result<Vec<(&'static str, String)>, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Read { file: file.into(), source })?;
    let table: toml::Table = text.parse().map_err(|source| ConfigError::Toml { file: file.into(), source })?;
    let unknown = |key: String| ConfigError::UnknownKey {
        file: file.into(),
        key,
        known: OPTIONS.iter().map(|o| o.key).collect::<Vec<_>>().join(", "),
    };
    let mut found = Vec::new();
    for (section, values) in &table {
        let (true, toml::Value::Table(values)) = (section == "run", values) else {
            return Err(unknown(section.clone()));
        };
        for (key, value) in values {
            let row = OPTIONS.iter().find(|o| o.key == key);
            let row = row.ok_or_else(|| unknown(format!("run.{key}")))?;
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(yes) => yes.to_string(),
                _ => {
                    return Err(ConfigError::Kind { file: file.into(), key: key.clone() });
                }
            };
            found.push((row.key, text));
        }
    }
    Ok(found)
}

impl Layers {
    /// Reads all layers. `file` is the one that the user named, if any; it must exist.
    pub(crate) fn read(options: &JobOptions, file: Option<&Path>) -> Result<Self, ConfigError> {
        let file = file.map(Path::to_owned).or_else(usual_file);
        let from_file = file.as_deref().map_or(Ok(Vec::new()), read_file)?;
        let mut variables = Vec::new();
        for row in OPTIONS {
            match std::env::var(row.variable) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => variables.push((row.key, text)),
                Err(std::env::VarError::NotPresent) => {}
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(ConfigError::Utf8 { variable: row.variable });
                }
            }
        }
        let name = file.map(|f| f.display().to_string()).unwrap_or_default();
        Ok(Self::from_parts(from_file, &name, variables, flags(options)))
    }

    fn from_parts(
        from_file: Vec<(&'static str, String)>,
        file: &str,
        variables: Vec<(&'static str, String)>,
        flags: Vec<(&'static str, Option<&str>)>,
    ) -> Self {
        let mut found = BTreeMap::new();
        for (key, text) in from_file {
            found.insert(key, (text, format!("{key} in {file}")));
        }
        for (key, text) in variables {
            let row = OPTIONS.iter().find(|o| o.key == key);
            found.insert(key, (text, row.map_or(key, |o| o.variable).to_owned()));
        }
        for (key, text) in flags {
            if let Some(text) = text {
                let row = OPTIONS.iter().find(|o| o.key == key);
                found.insert(key, (text.to_owned(), row.map_or(key, |o| o.flag).to_owned()));
            }
        }
        Self { found }
    }

    /// The text of an option and its source, if any layer or the default gives one.
    pub(super) fn get(&self, key: &str) -> Option<(&str, &str)> {
        match self.found.get(key) {
            Some((text, source)) => Some((text, source)),
            None => {
                let row = OPTIONS.iter().find(|o| o.key == key)?;
                Some((row.default?, "default"))
            }
        }
    }

    /// Key, value if one is set, and source, of all options.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'static str, Option<&str>, &str)> {
        OPTIONS.iter().map(|row| match self.get(row.key) {
            Some((text, source)) => (row.key, Some(text), source),
            None => (row.key, None, "not set"),
        })
    }

    #[cfg(test)]
    pub(super) fn of(key: &'static str, text: &str) -> Self {
        Self::from_parts(Vec::new(), "", Vec::new(), vec![(key, Some(text))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_row_and_every_row_a_flag() {
        let options = JobOptions::default();
        let flags: Vec<_> = flags(&options).into_iter().map(|(key, _)| key).collect();
        let rows: Vec<_> = OPTIONS.iter().map(|o| o.key).collect();
        assert_eq!(flags, rows);
    }

    #[test]
    fn no_variable_is_warned_of_as_unknown() {
        let names = OPTIONS.iter().map(|row| row.variable.into());
        assert!(mapwire::environment::unknown_variables(names).is_empty());
    }

    #[test]
    fn a_flag_beats_a_variable_beats_the_file_beats_the_default() {
        let layers = Layers::from_parts(
            vec![("wait", "event".into()), ("views", "4".into()), ("shared", "1G".into())],
            "f.toml",
            vec![("wait", "poll".into()), ("views", "8".into())],
            vec![("wait", Some("adaptive")), ("bind", None)],
        );
        assert_eq!(layers.get("wait"), Some(("adaptive", "--wait")));
        assert_eq!(layers.get("views"), Some(("8", "MAPWIRE_VIEWS")));
        assert_eq!(layers.get("shared"), Some(("1G", "shared in f.toml")));
        assert_eq!(layers.get("bind"), Some(("none", "default")));
        assert_eq!(layers.get("timeout"), None);
    }
}
