//! Default paths.

use std::path::PathBuf;

/// Path of the secret: `mapwire/secret` in the user's configuration folder.
#[must_use]
pub fn usual_path() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = match (set("XDG_CONFIG_HOME"), set("HOME")) {
        (Some(folder), _) => folder.into(),
        (None, Some(home)) => PathBuf::from(home).join(".config"),
        (None, None) => PathBuf::from("/etc"),
    };
    base.join("mapwire/secret")
}
