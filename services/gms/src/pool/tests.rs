use super::*;

const PEER: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

fn name(page: u64) -> PageName {
    PageName { space: 1, page }
}

/// A pool of which frame 10 holds page 0, granted to a peer before.
fn pool(frames: u32) -> (Pool, u32) {
    let mut pool = Pool::new(10, frames);
    pool.set_target(frames);
    let frame = pool.grant(PEER).unwrap();
    assert!(pool.is_granted(frame, PEER) && !pool.is_granted(frame, OTHER));
    pool.put(frame, resident(0));
    (pool, frame)
}

fn resident(page: u64) -> Resident {
    Resident {
        page: PageInfo { name: name(page), ..PageInfo::default() },
        last_use_ns: page,
        stamp: 0,
        is_listed: true,
        putter: None,
        moved_from: None,
        eviction: None,
    }
}

#[test]
fn a_frame_that_is_read_is_not_granted_again_until_all_readers_are_done() {
    let (mut pool, frame) = pool(1);
    pool.begin_read(frame, PEER, 1, false);
    pool.begin_read(frame, OTHER, 1, false);
    assert!(pool.remove(frame).is_some());
    assert_eq!((pool.find(name(0)), pool.grant(PEER)), (None, None));
    pool.end_read(PEER, 1, true);
    assert_eq!(pool.grant(PEER), None);
    pool.end_read(OTHER, 1, true);
    assert_eq!(pool.grant(PEER), Some(frame));
}

#[test]
fn a_page_that_is_given_away_is_back_if_it_was_not_taken() {
    let (mut pool, frame) = pool(1);
    pool.begin_read(frame, PEER, 7, true);
    assert_eq!(pool.find(name(0)), None);
    assert_eq!(pool.end_reads(PEER), [frame]);
    assert_eq!(pool.find(name(0)), Some(frame));
    pool.begin_read(frame, PEER, 8, true);
    assert_eq!(pool.end_read(PEER, 8, true), None);
    assert_eq!((pool.find(name(0)), pool.free()), (None, 1));
}

#[test]
fn a_page_that_comes_back_makes_way_for_a_newer_copy() {
    let (mut pool, frame) = pool(2);
    pool.begin_read(frame, PEER, 7, true);
    let newer = pool.grant(OTHER).unwrap();
    pool.put(newer, resident(0));
    assert_eq!(pool.end_read(PEER, 7, false), None);
    assert_eq!((pool.find(name(0)), pool.free()), (Some(newer), 1));
}

#[test]
fn fewer_frames_serve_as_they_become_free() {
    let (mut pool, frame) = pool(3);
    let granted = pool.grant(OTHER).unwrap();
    pool.set_target(0);
    assert_eq!(pool.serving(), 2);
    pool.end_grants(OTHER);
    assert!(!pool.is_granted(granted, OTHER));
    pool.remove(frame);
    assert_eq!(pool.serving(), 0);
    assert_eq!(pool.uses().idle, 3);
}
