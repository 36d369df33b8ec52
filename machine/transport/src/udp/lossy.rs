//! A bad network for tests and measurements: loses, repeats, delays and damages some of what is received.

use core::net::SocketAddr;
use core::str::FromStr;

use super::Udp;
use super::receive::Datagram;

/// Datagrams that are held back at once.
const HELD: usize = 16;
/// Looks that find nothing until held datagrams are given all the same.
const PATIENCE: u32 = 64;

/// How often each fault strikes, in datagrams of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub drop: u32,
    /// It comes once more, later.
    pub duplicate: u32,
    /// It comes after up to 8 later ones.
    pub reorder: u32,
    /// One of its bits is flipped.
    pub corrupt: u32,
}

/// Faults, and the seed by which they strike, as they are written: `1%`, or `loss=1%,duplicate=0.1%,reorder=1%,corrupt=0.01%,seed=7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub faults: Faults,
    /// By which seed; 1 if none is given.
    pub seed: u64,
}

/// Why a text is no [`Loss`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a fault; write a share of the datagrams that are lost, such as 1%, or a list of loss, duplicate, reorder and corrupt with shares, and seed: loss=1%,reorder=2%,seed=7"
)]
pub struct LossError(String);

impl FromStr for Loss {
    type Err = LossError;

    fn from_str(text: &str) -> Result<Self, LossError> {
        let mut loss = Self { faults: Faults::default(), seed: 1 };
        for word in text.split(',') {
            let wrong = || LossError(word.chars().take(64).collect());
            let (name, value) = word.trim().split_once('=').unwrap_or(("loss", word.trim()));
            let share = match name {
                "seed" => {
                    loss.seed = value.parse().map_err(|_| wrong())?;
                    continue;
                }
                "loss" => &mut loss.faults.drop,
                "duplicate" => &mut loss.faults.duplicate,
                "reorder" => &mut loss.faults.reorder,
                "corrupt" => &mut loss.faults.corrupt,
                _ => return Err(wrong()),
            };
            let percent = value.strip_suffix('%').ok_or_else(wrong)?.parse::<f64>();
            let percent = percent.ok().filter(|share| (0.0..=100.0).contains(share));
            *share = (percent.ok_or_else(wrong)? * 10_000.0).round() as u32;
        }
        Ok(loss)
    }
}

/// Faults that strike by a seed: the same ones for the same datagrams in the same order. It allocates when made only.
#[derive(Debug)]
pub struct Lossy {
    faults: Faults,
    random: u64,
    held: Box<[HeldDatagram]>,
    empty_looks: u32,
}

#[derive(Clone, Debug)]
struct HeldDatagram {
    bytes: Box<[u8]>,
    length: usize,
    via: usize,
    from: Option<SocketAddr>,
    /// Datagrams that go first; `None` for a free place.
    after: Option<u64>,
}

impl Lossy {
    /// Faults by `seed`.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        let free = HeldDatagram { bytes: vec![0; 1 << 16].into(), length: 0, via: 0, from: None, after: None };
        Self { faults, random: seed, held: vec![free; HELD].into(), empty_looks: 0 }
    }

    /// As [`Udp::receive`]; what is lost or late is not given, but what comes behind it is.
    pub fn receive<'a>(&'a mut self, udp: &'a mut Udp) -> Option<Datagram<'a>> {
        loop {
            if let Some(due) = self.due() {
                return Some(self.give(due));
            }
            let Some(arrived) = udp.incoming.poll(&udp.sockets[..udp.receiving]) else {
                self.empty_looks += 1;
                return None;
            };
            self.empty_looks = 0;
            if self.passes(udp.incoming.datagram(arrived.clone())) {
                return Some(udp.incoming.datagram(arrived));
            }
        }
    }

    /// Whether a datagram is given now; perhaps it is damaged, or comes once more.
    fn passes(&mut self, datagram: Datagram<'_>) -> bool {
        for held in &mut self.held {
            held.after = held.after.map(|after| after.saturating_sub(1));
        }
        if self.strikes(self.faults.drop) {
            return false;
        }
        if self.strikes(self.faults.corrupt) && !datagram.bytes.is_empty() {
            let at = self.below(datagram.bytes.len() as u64) as usize;
            datagram.bytes[at] ^= 1 << self.below(8);
        }
        if self.strikes(self.faults.duplicate) {
            self.hold(&datagram);
        }
        !(self.strikes(self.faults.reorder) && self.hold(&datagram))
    }

    /// Index of a held datagram that is due.
    fn due(&mut self) -> Option<usize> {
        let is_over = self.empty_looks >= PATIENCE;
        let is_due = |held: &HeldDatagram| held.after.is_some_and(|after| after == 0 || is_over);
        self.held.iter().position(is_due)
    }

    fn give(&mut self, place: usize) -> Datagram<'_> {
        let held = &mut self.held[place];
        held.after = None;
        Datagram { via: held.via, from: held.from, bytes: &mut held.bytes[..held.length] }
    }

    /// Keeps a copy for later. False when there is no place.
    fn hold(&mut self, datagram: &Datagram<'_>) -> bool {
        let after = 1 + self.below(8);
        let Some(held) = self.held.iter_mut().find(|held| held.after.is_none()) else {
            return false;
        };
        let length = datagram.bytes.len();
        held.bytes[..length].copy_from_slice(datagram.bytes);
        (held.length, held.via, held.from) = (length, datagram.via, datagram.from);
        held.after = Some(after);
        true
    }

    fn strikes(&mut self, of_a_million: u32) -> bool {
        of_a_million > 0 && self.below(1_000_000) < u64::from(of_a_million)
    }

    /// A number below `end`, by SplitMix64 (Steele, Lea and Flood 2014).
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let loss = |text: &str| text.parse::<Loss>();
        assert_eq!(loss("1%").unwrap().faults.drop, 10_000);
        let all = loss("loss=5%, duplicate=0.1%,reorder=100%,corrupt=0.0001%,seed=7").unwrap();
        let faults = Faults { drop: 50_000, duplicate: 1000, reorder: 1_000_000, corrupt: 1 };
        assert_eq!((all.faults, all.seed), (faults, 7));
        for wrong in ["", "1", "loss=101%", "loss=-1%", "lost=1%", "seed=x", "1%,", "NaN%"] {
            assert!(loss(wrong).is_err(), "{wrong}");
        }
    }
}
