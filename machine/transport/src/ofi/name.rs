//! Name of an endpoint, by which peers connect to it.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | length of the provider's name |
//! | 2… | the provider's name |
//! | 8 bytes | stamp, random (little-endian): its frames begin with it |
//! | the rest | the address, in the provider's own format |

use super::error::OfiError;

const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) provider: String,
    pub(super) stamp: u64,
    pub(super) address: Vec<u8>,
}

impl Name {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let provider = self.provider.as_bytes();
        let provider = &provider[..provider.len().min(usize::from(u8::MAX))];
        let mut bytes = vec![VERSION, provider.len() as u8];
        bytes.extend(provider);
        bytes.extend(self.stamp.to_le_bytes());
        bytes.extend(&self.address);
        bytes
    }

    /// Reads a name, which another process has written.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, OfiError> {
        let (&[version, provider_bytes], rest) = bytes.split_first_chunk().ok_or(OfiError::BadName("it ends early"))?;
        if version != VERSION {
            return Err(OfiError::BadName("another version: all ranks must use one release of mapwire"));
        }
        let (provider, rest) =
            rest.split_at_checked(provider_bytes.into()).ok_or(OfiError::BadName("it ends early"))?;
        let (&stamp, address) = rest.split_first_chunk().ok_or(OfiError::BadName("it ends early"))?;
        Ok(Self {
            provider: String::from_utf8_lossy(provider).into_owned(),
            stamp: u64::from_le_bytes(stamp),
            address: address.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_as_it_was_written_and_no_prefix_of_its_fixed_part_does() {
        let name = Name {
            provider: "tcp;ofi_rxm".to_owned(),
            stamp: 0x0123_4567_89ab_cdef,
            address: vec![2, 0, 7, 7, 127, 0, 0, 1],
        };
        let bytes = name.to_bytes();
        assert_eq!(Name::from_bytes(&bytes), Ok(name));
        for end in 0..bytes.len() - 8 {
            assert!(Name::from_bytes(&bytes[..end]).is_err(), "{end} bytes");
        }
        let mut other = bytes.clone();
        other[0] = 2;
        assert!(Name::from_bytes(&other).is_err());
    }
}
