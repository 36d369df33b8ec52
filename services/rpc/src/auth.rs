//! Who calls: the flavours of RFC 5531 that are known here, NONE and SYS.

use alloc::string::String;
use alloc::vec::Vec;

use crate::xdr::{Decoder, Encoder, Xdr, XdrError, padding};

/// Flavour numbers.
pub(crate) const NONE: u32 = 0;
const SYS: u32 = 1;

/// Bytes of the longest body of a credential or verifier (RFC 5531 §8.2).
pub const MAX_AUTH_BYTES: usize = 400;

/// Bytes of the longest machine name of a SYS credential, and its most groups besides the first (appendix A).
pub const MAX_MACHINE_BYTES: usize = 255;
/// Groups besides the first.
pub const MAX_GROUPS: usize = 16;

/// A SYS credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    /// Any number that the caller chooses.
    pub stamp: u32,
    /// The caller's name of its machine; at most 255 bytes.
    pub machine: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups; at most 16.
    pub gids: Vec<u32>,
}

impl AuthSys {
    /// Reads the body of a credential of this flavour (RFC 5531, appendix A).
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(mut body: &[u8]) -> Result<Self, XdrError> {
        let mut from = Decoder::new(&mut body);
        let stamp = from.word()?;
        let machine = from.opaque(MAX_MACHINE_BYTES)?;
        let sys = Self {
            stamp,
            machine: String::from_utf8(machine).map_err(|_| XdrError::NotText)?,
            uid: from.word()?,
            gid: from.word()?,
            gids: {
                let count = from.length(MAX_GROUPS, 4)?;
                (0..count).map(|_| u32::decode(&mut from)).collect::<Result<_, _>>()?
            },
        };
        from.finish()?;
        Ok(sys)
    }

    /// Writes that body.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        to.word(self.stamp)?;
        to.value(&self.machine)?;
        to.word(self.uid)?;
        to.word(self.gid)?;
        to.value(&self.gids)
    }
}

/// What a caller says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// Nothing.
    #[default]
    None,
    /// User and groups.
    Sys(AuthSys),
}

/// Why a credential or verifier is refused (`auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AuthProblem {
    /// The credential is malformed, or says what the kernel does not.
    BadCredential = 1,
    /// The session must begin anew.
    RejectedCredential = 2,
    /// The verifier is malformed.
    BadVerifier = 3,
    /// The verifier has expired or was repeated.
    RejectedVerifier = 4,
    /// A flavour that the server does not take.
    TooWeak = 5,
    /// The server's verifier does not convince.
    InvalidResponse = 6,
    /// Anything else.
    Failed = 7,
}

impl AuthProblem {
    pub(crate) fn of(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::BadCredential,
            2 => Self::RejectedCredential,
            3 => Self::BadVerifier,
            4 => Self::RejectedVerifier,
            5 => Self::TooWeak,
            6 => Self::InvalidResponse,
            7 => Self::Failed,
            _ => return None,
        })
    }
}

/// What the kernel says of the process at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process id.
    pub pid: u32,
}

impl PeerCredentials {
    /// What may be believed of a credential: user and group must be those that the kernel says, and groups that it does not say are
    /// taken off. The superuser may speak for anybody.
    pub(crate) fn check(&self, credential: &mut Credential) -> Result<(), AuthProblem> {
        let Credential::Sys(sys) = credential else { return Ok(()) };
        if self.uid == 0 {
            return Ok(());
        }
        if (sys.uid, sys.gid) != (self.uid, self.gid) {
            return Err(AuthProblem::BadCredential);
        }
        sys.gids.clear();
        Ok(())
    }
}

impl Credential {
    /// Whether it is within the limits of the RFC.
    #[must_use]
    pub fn is_legal(&self) -> bool {
        match self {
            Self::None => true,
            Self::Sys(sys) => sys.machine.len() <= MAX_MACHINE_BYTES && sys.gids.len() <= MAX_GROUPS,
        }
    }

    pub(crate) fn encode(&self, to: &mut Encoder<'_>) -> Result<(), XdrError> {
        match self {
            Self::None => to.words([NONE, 0]),
            Self::Sys(sys) => {
                to.word(SYS)?;
                let machine = sys.machine.len();
                to.length(20 + machine + padding(machine) + 4 * sys.gids.len())?;
                sys.encode(to)
            }
        }
    }

    /// Reads an `opaque_auth`. The inner error is for the caller: its credential is refused.
    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Result<Self, AuthProblem>, XdrError> {
        let flavour = from.word()?;
        let body = from.opaque(MAX_AUTH_BYTES)?;
        Ok(match flavour {
            NONE => Ok(Self::None),
            SYS => AuthSys::decode(&body).map(Self::Sys).map_err(|_| AuthProblem::BadCredential),
            _ => Err(AuthProblem::RejectedCredential),
        })
    }
}

/// Reads a verifier of a call or reply, which the flavours known here leave empty: `None` for anything else.
pub(crate) fn decode_verifier(from: &mut Decoder<'_>) -> Result<Option<()>, XdrError> {
    let flavour = from.word()?;
    let body = from.opaque(MAX_AUTH_BYTES)?;
    Ok((flavour == NONE && body.is_empty()).then_some(()))
}

pub(crate) fn encode_verifier(to: &mut Encoder<'_>) -> Result<(), XdrError> {
    Credential::None.encode(to)
}
