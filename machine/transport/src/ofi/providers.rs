//! The providers of libfabric on this host.

use super::error::OfiError;
use super::sys::{InfoList, Library, Wanted};

/// A provider with endpoints that a transport can use: reliable, and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// What [`Ofi::open`](super::Ofi::open) takes, as `tcp;ofi_rxm`.
    pub name: String,
    /// Its version, major and minor.
    pub version: (u32, u32),
    /// Interfaces that it reaches peers by.
    pub interfaces: Vec<String>,
    /// Whether stores and fetches can go past the peer's processor.
    pub rma: bool,
}

/// All providers, in the library's order of preference. Empty if libfabric is installed and has none.
///
/// # Errors
/// [`OfiError::NotInstalled`], or libfabric fails.
pub fn providers() -> Result<Vec<Provider>, OfiError> {
    let library = Library::load()?;
    let list = InfoList::ask(library, Wanted { provider: None, source: None, needs: None })?;
    let mut providers: Vec<Provider> = Vec::new();
    for info in list.iter() {
        let name = info.provider();
        let interface = info.domain();
        let Some(known) = providers.iter_mut().find(|known| known.name == name) else {
            providers.push(Provider {
                name,
                version: info.provider_version(),
                interfaces: vec![interface],
                rma: info.has_rma(),
            });
            continue;
        };
        known.rma |= info.has_rma();
        if !known.interfaces.contains(&interface) {
            known.interfaces.push(interface);
        }
    }
    Ok(providers)
}

/// Preference of a provider if the user names none, lowest first.
fn rank(name: &str) -> u8 {
    match name.split(';').next().unwrap_or_default() {
        "tcp" => 1,
        // Slower, or on trial; `shm` reaches no other host.
        "net" | "udp" | "sockets" => 2,
        "shm" => 3,
        // A network interface that libfabric has been made for.
        _ => 0,
    }
}

/// The provider to use where the user names none: that of a network interface of its own, else `tcp`.
///
/// # Errors
/// As [`providers`]; [`OfiError::NoProvider`].
pub fn usual_provider() -> Result<String, OfiError> {
    let names = providers()?.into_iter().map(|provider| provider.name);
    let best = names.min_by_key(|name| rank(name));
    best.ok_or_else(|| OfiError::NoProvider { provider: "any".to_owned(), source_address: None, found: Vec::new() })
}

/// The version of the library, major and minor.
///
/// # Errors
/// [`OfiError::NotInstalled`].
pub fn version() -> Result<(u32, u32), OfiError> {
    Ok(Library::load()?.version())
}
