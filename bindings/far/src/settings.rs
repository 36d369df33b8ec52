//! Settings that `mapwire far` passes in variables.

use std::ffi::OsString;
use std::path::PathBuf;

use mapwire::global::{DirectoryPlacement, Lenders};
use mapwire_settings::DIRECTORY;
use mapwire_settings::far::{COPIES, DISK, DONORS, FILES, LOCAL, SECRET, STATS};

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) local_pages: usize,
    pub(crate) disk: PathBuf,
    pub(crate) lenders: Option<Lenders>,
    /// Whether private mappings of files are far.
    pub(crate) files: bool,
    /// The process that prints something at its end in any case.
    pub(crate) stats: Option<u32>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} makes no sense; start the program by `mapwire far`, which sets it")]
pub(crate) struct SettingsError {
    name: &'static str,
    value: OsString,
}

impl Settings {
    /// Reads the variables; `None` if far memory is not requested.
    ///
    /// # Errors
    /// The number of pages is invalid.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, SettingsError> {
        let Some(value) = variable(LOCAL) else {
            return Ok(None);
        };
        let Some(local_pages) = value.to_str().and_then(|text| text.parse().ok()) else {
            return Err(SettingsError { name: LOCAL, value });
        };
        Ok(Some(Self {
            local_pages,
            lenders: lenders(&variable)?,
            disk: variable(DISK).map_or_else(std::env::temp_dir, PathBuf::from),
            files: variable(FILES).is_some(),
            stats: variable(STATS).and_then(|value| value.to_str()?.parse().ok()),
        }))
    }
}

fn lenders(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Option<Lenders>, SettingsError> {
    let Some(store) = variable(DONORS) else {
        return Ok(None);
    };
    let text = |name| variable(name).unwrap_or_default();
    let wrong = |name| SettingsError { name, value: text(name) };
    let parsed = store.to_str().and_then(|text| text.parse().ok());
    let copies = text(COPIES);
    let copies = copies.to_str().and_then(|text| text.parse().ok());
    let directory = text(DIRECTORY);
    let directory = match directory.to_str() {
        Some("") => Some(DirectoryPlacement::default()),
        text => text.and_then(|text| text.parse().ok()),
    };
    Ok(Some(Lenders {
        store: parsed.ok_or_else(|| wrong(DONORS))?,
        secret_file: text(SECRET).into(),
        copies: copies.ok_or_else(|| wrong(COPIES))?,
        directory: directory.ok_or_else(|| wrong(DIRECTORY))?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        Settings::read(|name| {
            let found = given.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn without_its_variable_far_memory_is_off() {
        assert!(matches!(read(&[(DISK, "/x")]), Ok(None)));
    }

    #[test]
    fn the_variables_say_how_much_and_where() {
        let settings = read(&[(LOCAL, "64"), (DISK, "/x"), (STATS, "7")]);
        let settings = settings.unwrap().unwrap();
        assert!(!settings.files && read(&[(LOCAL, "64"), (FILES, "1")]).unwrap().unwrap().files);
        assert_eq!((settings.local_pages, settings.stats), (64, Some(7)));
        assert_eq!(settings.disk, PathBuf::from("/x"));
    }

    #[test]
    fn donors_are_found_by_a_store_with_a_secret() {
        let given = [(LOCAL, "64"), (DONORS, "mapwire://10.0.0.1"), (SECRET, "/s"), (COPIES, "2")];
        let lenders = read(&given).unwrap().unwrap().lenders.unwrap();
        assert_eq!(lenders.store.to_string(), "mapwire://10.0.0.1:6277");
        assert_eq!((lenders.secret_file, lenders.copies), (PathBuf::from("/s"), 2));
        assert_eq!(lenders.directory, DirectoryPlacement::default());
        let placed = |text| [&given[..], &[("MAPWIRE_DIRECTORY", text)]].concat();
        let lenders = read(&placed("host")).unwrap().unwrap().lenders.unwrap();
        assert_eq!(lenders.directory, DirectoryPlacement::Host);
        let error = read(&placed("moon")).unwrap_err().to_string();
        assert!(error.starts_with("MAPWIRE_DIRECTORY=\"moon\" makes no sense"), "{error}");
        let error = read(&given[..3]).unwrap_err().to_string();
        assert!(error.starts_with("MAPWIRE_FAR_COPIES"), "{error}");
    }

    #[test]
    fn what_is_no_number_is_named() {
        let error = read(&[(LOCAL, "64M")]).unwrap_err().to_string();
        assert!(error.starts_with("MAPWIRE_FAR_LOCAL_PAGES=\"64M\" makes no sense"), "{error}");
    }
}
