//! Messages of a hostile rank: valid except for what is drawn wrong. The [`Random`] of the parent module draws them.

use mapwire_dsm::{Access, Message, Minipage, Round, Units, Views};

use super::Random;

/// Threads of the attacked rank, pages and views of its memory.
pub(crate) const THREADS: u16 = 2;
pub(crate) const PAGES: u32 = 24;
pub(crate) const VIEWS: u16 = 3;
/// Kinds that are drawn here, some of which are two.
const DRAWN: u64 = 36;

/// Mostly a number that could be right, sometimes one that cannot.
pub(crate) fn number(random: &mut Random, likely: u64) -> u64 {
    match random.below(40) {
        0 => random.next(),
        1 => u64::MAX,
        2 => likely,
        _ => random.below(likely),
    }
}

pub(crate) fn minipage(random: &mut Random, known: &[Minipage]) -> Minipage {
    if !known.is_empty() && random.chance(70) {
        return known[random.below(known.len() as u64) as usize];
    }
    let page = number(random, u64::from(PAGES));
    let length_bytes = match random.below(4) {
        0 => 4096,
        1 => number(random, 5 * 4096),
        _ => number(random, 300),
    };
    let within = if length_bytes < 4096 { random.below(4096) } else { 0 };
    Minipage {
        view: number(random, u64::from(VIEWS)) as u16,
        offset_bytes: page.wrapping_mul(4096).wrapping_add(within),
        length_bytes,
    }
}

fn units(random: &mut Random) -> Units {
    let unit_bytes = match random.below(4) {
        0 => 4096,
        1 => 8192,
        2 => number(random, 9000),
        _ => number(random, 300),
    };
    Units {
        view: number(random, u64::from(VIEWS)) as u16,
        first_page: number(random, u64::from(PAGES)) as u32,
        length_bytes: unit_bytes.wrapping_mul(1 + random.below(5)).wrapping_sub(random.below(2)),
        unit_bytes,
    }
}

/// Mostly one, sometimes several, also where there are none.
pub(crate) fn views(random: &mut Random) -> Views {
    let mask = match random.below(10) {
        0 => random.next(),
        1 | 2 => random.below(1 << VIEWS),
        _ => 1,
    };
    Views::new(mask | 1).unwrap()
}

pub(crate) fn message(random: &mut Random, known: &[Minipage], ranks: u16, is_lazy: bool) -> Message {
    let minipage = minipage(random, known);
    let key = minipage.key();
    let thread = number(random, u64::from(THREADS)) as u16;
    let rank = number(random, u64::from(ranks)) as u16;
    let access = if random.chance(50) { Access::Read } else { Access::Write };
    let acks = if random.chance(60) { 0 } else { number(random, 3) as u16 };
    let lock = number(random, 3) as u32;
    let barrier = number(random, 4) as u32;
    let epoch = number(random, 4) as u32;
    let (pages, left) = (number(random, 8) as u32, number(random, 24) as u32);
    let round = Round { barrier, epoch, root: rank, value: random.next() };
    // Few pages, so that much happens to each.
    let page = number(random, 4) as u32;
    let places = random.below(3) as u16;
    let views = views(random);
    let kinds = match is_lazy {
        true => 7 + random.below(DRAWN - 7),
        false if random.chance(90) => random.below(18),
        false if random.chance(80) => 33 + random.below(3),
        false => random.below(DRAWN),
    };
    match kinds {
        0 => Message::Request { thread, key, access, views },
        1 => Message::Refuse { thread, key, views },
        2 => Message::Forward { minipage, requester: rank, thread, access, acks, views },
        3 | 4 => {
            let (data, done) = (random.chance(50), random.chance(50));
            Message::Grant { minipage, thread, access, acks, data, done, views }
        }
        5 => Message::Invalidate { key, requester: rank, thread, views },
        6 => Message::InvalidateAck { thread, key, views },
        7 => Message::Done { thread, key, views },
        8 if random.chance(50) => Message::RegisterUnits { units: units(random), thread },
        8 => Message::Register { minipage, thread },
        9 if random.chance(50) => Message::Push { run: minipage },
        9 => Message::Registered { thread },
        10 => Message::ChunkRequest { thread, need_pages: pages, want_pages: left },
        11 => Message::ChunkGrant { thread, first_page: left, pages },
        12 => Message::ChunkRefuse { thread, left_pages: left },
        13 => Message::LockRequest { lock },
        14 => Message::LockForward { lock, successor: rank },
        15 => Message::LockToken { lock },
        16 => Message::BarrierArrive { round },
        17 => Message::BarrierRelease { round },
        18 => Message::Notices,
        19 => Message::RegisterAt { minipage, thread, home: rank },
        20 => Message::HomeRequest { page, views },
        21 => Message::Home { page, home: rank, views },
        22 => Message::HomeRefuse { page },
        23 => Message::Diff { page },
        24 => Message::Fence { number: lock },
        25 => Message::FenceAck { number: lock },
        26 => Message::HomeMove { page, to: places },
        27 => Message::HomeClose { page, views },
        28 => Message::HomeClosed { page, views },
        29 => Message::HomeTake { page, from: places },
        30 => Message::HomeTaken { page },
        31 => Message::Changed { page, interval: number(random, 5) },
        33 => Message::ObjectRequest {
            thread,
            object: number(random, 24),
            kind: number(random, 9) as u8,
            verb: if random.chance(70) { number(random, 11) as u8 } else { random.below(26) as u8 },
            argument: number(random, 3),
        },
        34 => Message::ObjectAnswer { thread, result: number(random, 13) as u8, value: number(random, 3) },
        35 => Message::ObjectCancel { thread, object: number(random, 24) },
        _ => Message::Overlap {
            page,
            other: places,
            interval: number(random, 5),
            start: 1,
            length: number(random, 4095) as u16,
        },
    }
}

/// Write notices or a vector time, often correct.
pub(crate) fn payload(random: &mut Random, ranks: u16) -> Vec<u8> {
    if random.chance(20) {
        return (0..random.below(40)).map(|_| random.byte()).collect();
    }
    if random.chance(30) {
        return (0..ranks).flat_map(|_| random.below(3).to_le_bytes()).collect();
    }
    let count = random.below(5);
    let notice = |_| {
        let writer = number(random, u64::from(ranks)) as u16 | if random.chance(50) { 1 << 15 } else { 0 };
        let (count, first) = (number(random, 4) as u16, number(random, u64::from(PAGES)) as u32);
        let first = if count == 0 { 0 } else { first };
        let interval = number(random, 40);
        [&writer.to_le_bytes()[..], &count.to_le_bytes(), &first.to_le_bytes(), &interval.to_le_bytes()].concat()
    };
    (0..count).flat_map(notice).collect()
}

/// A peer's possible answer to a message, often correct.
pub(crate) fn answer(random: &mut Random, asked: Message, known: &[Minipage], ranks: u16, is_lazy: bool) -> Message {
    let right = if random.chance(50) { Access::Read } else { Access::Write };
    let views = if random.chance(80) { asked.views() } else { views(random) };
    match asked {
        Message::Request { thread, key, access, .. } if random.chance(80) => {
            let at = |minipage: &&Minipage| minipage.key() == key;
            let offset_bytes = u64::from(key.page).wrapping_mul(4096);
            let new = Minipage { view: key.view, offset_bytes, length_bytes: 1 + random.below(4096) };
            let minipage = known.iter().find(at).copied().unwrap_or(new);
            let access = if random.chance(90) { access } else { right };
            let acks = if random.chance(70) { 0 } else { random.below(3) as u16 };
            Message::Grant { minipage, thread, access, acks, data: random.chance(80), done: random.chance(30), views }
        }
        Message::Request { thread, key, .. } => Message::Refuse { thread, key, views },
        Message::Forward { minipage, thread, access, acks, .. } => {
            Message::Grant { minipage, thread, access, acks, data: true, done: false, views }
        }
        Message::Grant { minipage, thread, .. } => Message::Done { thread, key: minipage.key(), views },
        Message::Invalidate { key, thread, .. } => Message::InvalidateAck { thread, key, views },
        Message::Register { thread, .. } | Message::RegisterUnits { thread, .. } => Message::Registered { thread },
        Message::ChunkRequest { thread, need_pages, .. } if random.chance(90) => {
            let first_page = random.below(u64::from(PAGES)) as u32;
            Message::ChunkGrant { thread, first_page, pages: need_pages.wrapping_add(random.below(2) as u32) }
        }
        Message::ObjectRequest { thread, .. } => {
            Message::ObjectAnswer { thread, result: number(random, 3) as u8, value: random.below(2) }
        }
        Message::LockRequest { lock } | Message::LockForward { lock, .. } => Message::LockToken { lock },
        Message::HomeRequest { page, .. } if random.chance(80) => {
            Message::Home { page, home: random.below(3) as u16, views }
        }
        Message::HomeRequest { page, .. } => Message::HomeRefuse { page },
        Message::Home { page, .. } if random.chance(50) => Message::Diff { page },
        Message::Home { page, home, .. } => Message::HomeMove { page, to: (home + 1) % 3 },
        Message::HomeClosed { page, .. } => Message::HomeTake { page, from: random.below(3) as u16 },
        Message::HomeClose { page, .. } => Message::HomeClosed { page, views },
        Message::HomeTake { page, .. } => Message::HomeTaken { page },
        Message::Diff { page } if random.chance(50) => Message::HomeClose { page, views },
        Message::Changed { page, .. } => {
            Message::Overlap { page, other: random.below(3) as u16, interval: random.below(4), start: 1, length: 9 }
        }
        Message::Fence { number } => Message::FenceAck { number },
        Message::BarrierArrive { round } => Message::BarrierRelease { round },
        Message::BarrierRelease { round } => {
            Message::BarrierArrive { round: Round { epoch: round.epoch.wrapping_add(1), ..round } }
        }
        _ => message(random, known, ranks, is_lazy),
    }
}
