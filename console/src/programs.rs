//! Where the commands are that belong together: beside each other, or in `PATH`, as git finds its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program `name`: beside this one, else the first in the absolute folders of `PATH`.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|it| can_run(it))
}

fn can_run(path: &Path) -> bool {
    let is_program = |it: std::fs::Metadata| it.is_file() && it.permissions().mode() & 0o111 != 0;
    path.metadata().is_ok_and(is_program)
}
