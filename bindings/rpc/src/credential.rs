//! Conversion of credentials between libtirpc's form, which is that of the wire, and the calls' form.

use mapwire::rpc::{AuthSys, Credential};

/// Parses the body of an AUTH_SYS credential (RFC 5531, appendix A). `None` if malformed.
pub(crate) fn read(body: &[u8]) -> Option<AuthSys> {
    let mut words = Words(body);
    let stamp = words.next()?;
    let length = words.next()? as usize;
    let machine = words.bytes(length)?;
    let (uid, gid, count) = (words.next()?, words.next()?, words.next()?);
    if count > 16 {
        return None;
    }
    let gids = (0..count).map(|_| words.next()).collect::<Option<_>>()?;
    let sys = AuthSys { stamp, machine: String::from_utf8(machine.to_vec()).ok()?, uid, gid, gids };
    words.0.is_empty().then_some(sys)
}

/// Writes the body of a credential.
pub(crate) fn write(credential: &Credential) -> Vec<u8> {
    let mut body = Vec::new();
    if let Credential::Sys(sys) = credential {
        let mut word = |word: usize| body.extend_from_slice(&(word as u32).to_be_bytes());
        word(sys.stamp as usize);
        word(sys.machine.len());
        body.extend_from_slice(sys.machine.as_bytes());
        body.resize(body.len().next_multiple_of(4), 0);
        let mut word = |word: u32| body.extend_from_slice(&word.to_be_bytes());
        word(sys.uid);
        word(sys.gid);
        word(sys.gids.len() as u32);
        sys.gids.iter().for_each(|&gid| word(gid));
    }
    body
}

struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    /// Takes `length` bytes, and skips the padding of the last word.
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let whole = length.checked_next_multiple_of(4)?;
        let (bytes, rest) = self.0.split_at_checked(whole)?;
        self.0 = rest;
        Some(&bytes[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        for machine in ["", "a", "host", "a longer name"] {
            let sys = AuthSys { stamp: 7, machine: machine.into(), uid: 1000, gid: 100, gids: vec![4, 24] };
            let body = write(&Credential::Sys(sys.clone()));
            assert_eq!(read(&body), Some(sys));
            for length in 0..body.len() {
                assert_eq!(read(&body[..length]), None, "{length}");
            }
        }
        assert_eq!(read(&[0xff; 64]), None);
        assert!(write(&Credential::None).is_empty());
    }
}
