//! The shared secret of a store's users: a file of 64 hexadecimal digits that only its user may read.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};

pub use crate::usual::usual_path;
use crate::{NamesError, fill_random};

/// 32 random bytes, known only to the users of one store.
#[derive(Clone)]
pub struct SharedSecret([u8; 32]);

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret(…)")
    }
}

impl SharedSecret {
    /// Takes 32 random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads the file, which must belong to this user and be closed to all others.
    ///
    /// # Errors
    /// [`NamesError::NoSecret`], [`NamesError::Secret`].
    pub fn read(path: &Path) -> Result<Self, NamesError> {
        let wrong = |why: String| NamesError::Secret { path: path.to_owned(), why };
        let file = File::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => NamesError::NoSecret { path: path.to_owned() },
            _ => wrong(format!("cannot be read: {error}")),
        })?;
        // Check the open file, so that nobody can replace it in between.
        let about = file.metadata().map_err(|error| wrong(error.to_string()))?;
        let me = rustix::process::geteuid().as_raw();
        if !about.is_file() {
            return Err(wrong("not a file".into()));
        }
        if about.uid() != me {
            let owner = about.uid();
            return Err(wrong(format!("belongs to user {owner}, not to {me}, who runs this; make a copy of your own")));
        }
        if about.mode() & 0o177 != 0 {
            let (mode, shown) = (about.mode() & 0o7777, path.display());
            return Err(wrong(format!(
                "has mode {mode:04o}, so others may use it; `chmod 600 {shown}`, and make a new one if others have read it"
            )));
        }
        let mut text = String::new();
        let read = file.take(256).read_to_string(&mut text);
        read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
        parse(text.trim_end())
            .ok_or_else(|| wrong("does not hold 64 hexadecimal digits; copy it again, or make a new one".into()))
    }

    /// Makes a new secret in a new file, with its parent folders.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn create(path: &Path) -> Result<Self, NamesError> {
        let wrong = |why: String| NamesError::Secret { path: path.to_owned(), why };
        let mut secret = [0; 32];
        fill_random(&mut secret)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| wrong(format!("its folder cannot be made: {error}")))?;
        }
        // Written under another name first, so that nobody reads half of it.
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        let draft = PathBuf::from(draft);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| {
                let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(file, "{digits}")?;
                file.sync_all()
            })
            .and_then(|()| std::fs::hard_link(&draft, path));
        let _ = std::fs::remove_file(&draft);
        match written {
            Ok(()) => Ok(Self(secret)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(wrong("exists; remove it first if no host shall use it any more".into()))
            }
            Err(error) => Err(wrong(format!("cannot be written: {error}"))),
        }
    }

    /// Derives a key for one purpose, which reveals nothing about the secret or other keys: keyed BLAKE2s over `purpose` and `parts`.
    #[must_use]
    pub fn derive(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        let all = [&[purpose.as_bytes()], parts].concat();
        code(&self.0, &all)
    }

    /// [Derives](Self::derive) a key for signing values.
    #[must_use]
    pub fn signing_key(&self, purpose: &str, parts: &[&[u8]]) -> SigningKey {
        SigningKey(self.derive(purpose, parts))
    }
}

/// A key for signing values.
#[derive(Clone)]
pub struct SigningKey([u8; 32]);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl SigningKey {
    /// A code of `parts` that only those who have the key can make.
    #[must_use]
    pub fn code(&self, parts: &[&[u8]]) -> [u8; 32] {
        code(&self.0, parts)
    }

    /// Whether `given` is the [`code`](Self::code) of `parts`, in constant time.
    #[must_use]
    pub fn verifies(&self, parts: &[&[u8]], given: &[u8; 32]) -> bool {
        mac(&self.0, parts).verify(given.into()).is_ok()
    }
}

/// Keyed BLAKE2s (RFC 7693 §2.9) over `parts`, each after its length.
fn code(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    mac(key, parts).finalize().into_bytes().into()
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> Blake2sMac256 {
    let mac = <Blake2sMac256 as KeyInit>::new(key.into());
    parts.iter().fold(mac, |mac, part| mac.chain_update((part.len() as u64).to_le_bytes()).chain_update(part))
}

fn parse(text: &str) -> Option<SharedSecret> {
    let text = text.as_bytes();
    if text.len() != 64 {
        return None;
    }
    let mut secret = [0; 32];
    for (byte, digits) in secret.iter_mut().zip(text.chunks(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(SharedSecret(secret))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_made_is_read_and_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/secret");
        let made = SharedSecret::create(&path).unwrap();
        assert_eq!(SharedSecret::read(&path).unwrap().0, made.0);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let error = SharedSecret::create(&path).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
        assert_eq!(SharedSecret::read(&path).unwrap().0, made.0);
        assert_eq!(path.parent().unwrap().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_may_read_or_that_holds_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let says = |part: &str| {
            let error = SharedSecret::read(&path).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        says("mapwire serve --new-secret");
        SharedSecret::create(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o666, 0o700] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            says("chmod 600");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert!(SharedSecret::read(&path).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "ab", &"x".repeat(64), &"ab".repeat(33)] {
            std::fs::write(&path, text).unwrap();
            says("64 hexadecimal digits");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        says("not a file");
    }

    #[test]
    fn keys_differ_by_purpose_and_by_how_the_parts_are_cut() {
        let secret = SharedSecret::new([7; 32]);
        let keys = [
            secret.derive("a", &[]),
            secret.derive("b", &[]),
            secret.derive("a", &[b"xy", b"z"]),
            secret.derive("a", &[b"x", b"yz"]),
            SharedSecret::new([8; 32]).derive("a", &[]),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{at}");
        }
        let [a, b] = ["a", "b"].map(|purpose| secret.signing_key(purpose, &[]));
        let code = a.code(&[b"v"]);
        assert!(a.verifies(&[b"v"], &code));
        assert!(!a.verifies(&[b"w"], &code));
        assert!(!b.verifies(&[b"v"], &code));
    }
}
