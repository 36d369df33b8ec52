//! A place for what another user runs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that every user can enter, removed when dropped. Cargo's folder may lie below one that only its owner enters, so a test that
/// runs something as another user runs a copy from here.
#[derive(Debug)]
pub struct OpenFolder(PathBuf);

impl OpenFolder {
    /// Makes one: in the folder for temporary files if every user can enter that, or else in one of the system's.
    ///
    /// # Panics
    /// If no folder will do.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(temporary: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folders = [temporary, Path::new("/tmp"), Path::new("/var/tmp")];
        let parent = folders.into_iter().find(|folder| is_open_to_all(folder));
        let parent = parent.unwrap_or_else(|| panic!("every user can enter none of {folders:?}"));
        let folder = parent.join(format!("mapwire-open-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Copies a file into it, which every user may read and run; gives the copy's path.
    ///
    /// # Panics
    /// If the file cannot be copied.
    #[must_use]
    pub fn copy_of(&self, file: impl AsRef<Path>) -> PathBuf {
        let file = file.as_ref();
        let copy = self.0.join(file.file_name().unwrap());
        std::fs::copy(file, &copy).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
        copy
    }
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether every user can enter a folder.
fn is_open_to_all(folder: &Path) -> bool {
    let is_open = |folder: &Path| folder.metadata().is_ok_and(|data| data.permissions().mode() & 0o001 != 0);
    folder.canonicalize().is_ok_and(|folder| folder.ancestors().all(is_open))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_entered_though_the_folder_for_temporary_files_cannot() {
        let outer = OpenFolder::new();
        let inner = outer.path().join("private/temporary");
        std::fs::create_dir_all(&inner).unwrap();
        let private = PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(inner.parent().unwrap(), private).unwrap();
        let folder = OpenFolder::below(&inner);
        assert!(is_open_to_all(folder.path()) && !is_open_to_all(&inner));
        let copy = folder.copy_of(std::env::current_exe().unwrap());
        assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        // Where the other is open, it is used.
        let other = OpenFolder::below(outer.path());
        assert_eq!(other.path().parent(), Some(outer.path()));
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }
}
