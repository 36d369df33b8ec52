//! Where the commands are that belong together: beside each other, or in `PATH`, as git finds its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program `name`: beside this one, else the first in the absolute folders of `PATH`.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let mut others = folders.map(|folder| folder.join(name));
    beside(name).or_else(|| others.find(|it| can_run(it)))
}

/// The program `name` beside this one, which came with it.
#[must_use]
pub fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.parent()?.join(name)).filter(|it| can_run(it))
}

fn can_run(path: &Path) -> bool {
    let is_program = |it: std::fs::Metadata| it.is_file() && it.permissions().mode() & 0o111 != 0;
    path.metadata().is_ok_and(is_program)
}
