//! What a client knows of a page, in a word that threads can share.

use mapwire_wire::NodeId;

use crate::outcome::Place;

/// Bit of a word: the disk has the page as well.
const ON_DISK: u64 = 1 << 31;

/// First bit of the place: a frame, counted from 1, and a node above it. Both are 0 where the place is not known.
const PLACE: u32 = 32;

/// Bits of a place's frame. A node has the 8 above.
const FRAME_BITS: u32 = 24;

/// The place in a word where its numbers are too large: no frame.
const TOO_LARGE: u64 = 1 << FRAME_BITS;

/// Versions are less than this.
pub const MAX_VERSION: u32 = (ON_DISK - 1) as u32;

/// What is known of a page that donors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The version that was put, at least 1.
    pub version: u32,
    /// Whether the disk has the same.
    pub is_on_disk: bool,
    /// A donor that has it, as far as is known. It may be elsewhere by now.
    pub place: Option<Place>,
}

/// Where to get a page whose bytes were wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// From the donor that has it by now, which is asked. Its [place](Known::place) is not known any more.
    Donor,
    Disk,
    /// From a donor that gives it away for good, so that another is asked the next time. What comes goes to the disk.
    NextDonor,
    /// It is lost.
    Nowhere,
}

/// What is known of a page. The page is [known](Self::known) to be at donors, or lost with them, or the disk has what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageWord(pub u64);

impl PageWord {
    /// Donors do not have the page.
    pub const NONE: Self = Self(0);
    /// Only donors had the page, and have it no more; or the disk did not take it.
    pub const LOST: Self = Self(ON_DISK);
    /// Donors have the page no more, and the disk has what lay where it was: the page, or another one.
    pub const SALVAGED: Self = Self(ON_DISK | 1 << PLACE);

    /// Donors have this. A place whose numbers are too large is left out.
    #[must_use]
    pub fn of(known: Known) -> Self {
        let bit = if known.is_on_disk { ON_DISK } else { 0 };
        let place = known.place.map_or(0, |place| {
            let number = u64::from(place.frame) + 1;
            let fits = number >> FRAME_BITS == 0 && place.node.0 < 1 << 8;
            if fits { u64::from(place.node.0) << FRAME_BITS | number } else { TOO_LARGE }
        });
        Self(place << PLACE | bit | u64::from(known.version))
    }

    /// What donors have.
    #[must_use]
    pub fn known(self) -> Option<Known> {
        let version = self.0 as u32 & MAX_VERSION;
        let frame = ((self.0 >> PLACE) as u32 & ((1 << FRAME_BITS) - 1)).checked_sub(1);
        let node = NodeId((self.0 >> (PLACE + FRAME_BITS)) as u16);
        let place = frame.map(|frame| Place { node, frame });
        (version != 0).then_some(Known { version, is_on_disk: self.0 & ON_DISK != 0, place })
    }

    /// Whether the page is known to be available, with all its copies: one that only donors have, and that came with wrong bytes, has fewer.
    #[must_use]
    pub fn is_kept(self) -> bool {
        match self.known() {
            Some(known) => known.is_on_disk || self.0 >> PLACE != 0,
            None => self == Self::NONE,
        }
    }

    /// The donors are gone: the disk has the page, or nobody has.
    #[must_use]
    pub fn without_donors(self) -> Self {
        match self.known() {
            Some(known) if known.is_on_disk => Self::NONE,
            Some(_) => Self::LOST,
            None => self,
        }
    }

    /// Where to look next for a page that came with wrong bytes, the `attempt`th time, from 0.
    #[must_use]
    pub fn elsewhere(self, attempt: u32) -> Elsewhere {
        match self.known() {
            Some(Known { place: Some(_), .. }) => Elsewhere::Donor,
            Some(known) if known.is_on_disk && attempt < 2 => Elsewhere::Disk,
            Some(_) if attempt < 4 => Elsewhere::NextDonor,
            // Donors have been forgotten meanwhile.
            None if attempt < 2 && self != Self::LOST => Elsewhere::Disk,
            _ => Elsewhere::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(is_on_disk: bool, frame: Option<u32>) -> Known {
        Known { version: 3, is_on_disk, place: frame.map(|frame| Place { node: NodeId(255), frame }) }
    }

    #[test]
    fn a_word_reads_back_as_it_was_made_and_a_frame_whose_number_is_too_large_has_no_place() {
        let last = (1 << FRAME_BITS) - 2;
        for is_on_disk in [false, true] {
            for frame in [None, Some(0), Some(last)] {
                let known = known(is_on_disk, frame);
                assert_eq!(PageWord::of(known).known(), Some(known));
            }
            let word = PageWord::of(known(is_on_disk, Some(last + 1)));
            assert_eq!(word.known(), Some(known(is_on_disk, None)));
            assert!(word.is_kept());
        }
        for word in [PageWord::NONE, PageWord::LOST, PageWord::SALVAGED] {
            assert_eq!(word.known(), None);
        }
    }

    #[test]
    fn a_page_is_lost_with_its_donors_unless_the_disk_has_it() {
        assert_eq!(PageWord::of(known(true, None)).without_donors(), PageWord::NONE);
        assert_eq!(PageWord::of(known(false, Some(1))).without_donors(), PageWord::LOST);
        assert_eq!(PageWord::SALVAGED.without_donors(), PageWord::SALVAGED);
        assert!(PageWord::NONE.is_kept() && !PageWord::LOST.is_kept() && !PageWord::SALVAGED.is_kept());
    }

    #[test]
    fn a_page_that_came_with_wrong_bytes_counts_as_kept_only_where_the_disk_has_it() {
        assert!(PageWord::of(known(false, Some(0))).is_kept() && PageWord::of(known(true, None)).is_kept());
        assert!(!PageWord::of(known(false, None)).is_kept());
    }

    #[test]
    fn a_page_with_wrong_bytes_is_looked_for_at_its_donor_then_on_the_disk_then_at_other_donors() {
        let moved = PageWord::of(known(true, Some(1)));
        assert_eq!(moved.elsewhere(0), Elsewhere::Donor);
        let both = PageWord::of(known(true, None));
        let tried: [Elsewhere; 5] = core::array::from_fn(|attempt| both.elsewhere(attempt as u32));
        use Elsewhere::{Disk, NextDonor, Nowhere};
        assert_eq!(tried, [Disk, Disk, NextDonor, NextDonor, Nowhere]);
        let donors = PageWord::of(known(false, None));
        assert_eq!((donors.elsewhere(0), donors.elsewhere(4)), (NextDonor, Nowhere));
        assert_eq!((PageWord::NONE.elsewhere(1), PageWord::NONE.elsewhere(2)), (Disk, Nowhere));
        assert_eq!((PageWord::SALVAGED.elsewhere(0), PageWord::LOST.elsewhere(0)), (Disk, Nowhere));
    }
}
