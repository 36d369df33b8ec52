//! What libfabric offers on this host.

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
    /// Whether words of a peer's memory can be changed.
    pub atomics: bool,
    /// The longest message, bytes.
    pub max_message_bytes: usize,
}

/// All providers, in the library's order of preference. Empty if libfabric is installed and has none.
///
/// # Errors
/// [`OfiError::NotInstalled`], or libfabric fails.
pub fn providers() -> Result<Vec<Provider>, OfiError> {
    let library = Library::load()?;
    let list = InfoList::ask(
        library,
        Wanted {
            provider: None,
            source: None,
            needs: None,
        },
    )?;
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
                atomics: info.has_atomics(),
                max_message_bytes: info.max_message_bytes(),
            });
            continue;
        };
        known.rma |= info.has_rma();
        known.atomics |= info.has_atomics();
        known.max_message_bytes = known.max_message_bytes.max(info.max_message_bytes());
        if !known.interfaces.contains(&interface) {
            known.interfaces.push(interface);
        }
    }
    Ok(providers)
}

/// The version of the library, major and minor.
///
/// # Errors
/// [`OfiError::NotInstalled`].
pub fn version() -> Result<(u32, u32), OfiError> {
    Ok(Library::load()?.version())
}
