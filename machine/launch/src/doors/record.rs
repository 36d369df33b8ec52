//! What is said at a door: one record each way, lines of text.
//!
//! | who | says |
//! |---|---|
//! | client | `mapwire-knock RELEASE` |
//! | server | `admitted`, address of the job, rank, ranks in the job |
//! | server | `refused`, why |

use mapwire_transport::board::MAX_RANKS;
use mapwire_transport::rendezvous::JobAddress;

/// Longest record, in bytes.
pub(super) const MAX_BYTES: usize = 512;

const MAGIC: &str = "mapwire-knock ";
/// Processes of other releases are not admitted.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

pub(super) fn knock() -> String {
    format!("{MAGIC}{RELEASE}")
}

/// Whether `bytes` are a knock, and of this release: else the reason to refuse it. `None`: no knock at all.
pub(super) fn check_knock(bytes: &[u8]) -> Option<Result<(), String>> {
    let release = crate::clean_text(bytes, MAX_BYTES)?.strip_prefix(MAGIC)?;
    Some(if release == RELEASE {
        Ok(())
    } else {
        Err(format!("it is of mapwire {RELEASE}, this process of another release; use the same"))
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Admitted { address: JobAddress, rank: u32, size: u32 },
    Refused(String),
}

impl Answer {
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Admitted { address, rank, size } => format!("admitted\n{address}\n{rank}\n{size}"),
            Self::Refused(why) => {
                let clean = why.chars().filter(|c| !c.is_control());
                format!("refused\n{}", clean.take(80).collect::<String>())
            }
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = crate::clean_text(bytes, MAX_BYTES)?.lines();
        let answer = match lines.next()? {
            "admitted" => {
                let address = lines.next()?.parse().ok()?;
                let (rank, size) = (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
                if rank == 0 || rank >= size || size > MAX_RANKS {
                    return None;
                }
                Self::Admitted { address, rank, size }
            }
            "refused" => Self::Refused(lines.next()?.to_owned()),
            _ => return None,
        };
        lines.next().is_none().then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_back() {
        let address = JobAddress::random().unwrap();
        for answer in [
            Answer::Admitted { address: address.clone(), rank: 3, size: 256 },
            Answer::Admitted { address: address.of_user(1000), rank: 255, size: 256 },
            Answer::Refused("too many".into()),
        ] {
            assert_eq!(Answer::parse(answer.to_text().as_bytes()), Some(answer));
        }
        assert_eq!(check_knock(knock().as_bytes()), Some(Ok(())));
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        let address = JobAddress::random().unwrap();
        for bad in [
            String::new(),
            "admitted".into(),
            format!("admitted\n{address}\n0\n4"),
            format!("admitted\n{address}\n4\n4"),
            format!("admitted\n{address}\n1\n99999"),
            format!("admitted\n{address}\n1\n4\nmore"),
            format!("admitted\n{address}x\n1\n4"),
            "refused".into(),
            "refused\n\u{1b}[31m".into(),
            format!("refused\n{}", "x".repeat(MAX_BYTES)),
        ] {
            assert_eq!(Answer::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(check_knock(b"mapwire-knock"), None);
        assert_eq!(check_knock(&[0xff; 9]), None);
        let other = check_knock(b"mapwire-knock 9.9.9").unwrap().unwrap_err();
        assert!(other.contains(RELEASE), "{other}");
    }
}
