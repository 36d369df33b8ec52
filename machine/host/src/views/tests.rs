use super::*;
use crate::faults::{Access, FaultBackend, PageProtection};
use crate::memory::{MappedBuffer, check_memory};
use crate::testing::{count_of, free_base, in_child, is_dumped, lower_limit, store_word};

#[test]
fn an_address_is_located_in_its_view_and_nowhere_else() {
    let layout = ViewLayout::new(DEFAULT_BASE, 10_000, 4).unwrap();
    assert_eq!((layout.bytes, layout.pages()), (3 * PAGE_BYTES, 3));
    assert_eq!(layout.locate(DEFAULT_BASE), None, "the privileged view is not located");
    for view in 0..4 {
        let start = DEFAULT_BASE + (view + 1) * layout.stride;
        assert_eq!(layout.view_range(view), start..start + layout.bytes);
        assert_eq!(layout.locate(start), Some((view, 0)));
        assert_eq!(layout.locate(start + layout.bytes - 1), Some((view, layout.bytes - 1)));
        assert_eq!(layout.locate(start + layout.bytes), None);
        assert_eq!(layout.locate(start - 1), None);
    }
    for outside in [0, DEFAULT_BASE - 1, DEFAULT_BASE + 5 * layout.stride, usize::MAX] {
        assert_eq!(layout.locate(outside), None);
    }
}

#[test]
fn layouts_that_cannot_be_are_refused_by_value() {
    assert!(matches!(ViewLayout::new(DEFAULT_BASE, 0, 1), Err(ViewError::Empty { .. })));
    assert!(matches!(ViewLayout::new(DEFAULT_BASE, 1, 0), Err(ViewError::Empty { .. })));
    let error = ViewLayout::new(4096, 1, 1).unwrap_err();
    assert!(error.to_string().contains("MAPWIRE_SHARED_BASE"), "{error}");
    for (bytes, views) in [(usize::MAX, 1), (1 << 40, 1 << 40), (1, usize::MAX)] {
        let error = ViewLayout::new(DEFAULT_BASE, bytes, views).unwrap_err();
        assert!(error.to_string().contains("MAPWIRE_VIEWS"), "{error}");
    }
}

#[test]
fn views_are_closed_at_first_and_the_privileged_view_is_open() {
    let layout = ViewLayout::new(free_base(), 8 * PAGE_BYTES, 2).unwrap();
    let views = MultiView::new("closed", layout).unwrap();
    assert_eq!(check_memory(layout.base, layout.bytes, true), Ok(()));
    for view in 0..2 {
        assert!(check_memory(layout.view_range(view).start, 1, false).is_err());
    }
    assert_eq!(views.privileged(5, 3).unwrap().addr(), layout.base + 5);
    assert!(views.privileged(layout.bytes - 1, 2).is_err());
    assert!(views.privileged(usize::MAX, 2).is_err());
    let address = views.application(1, 77);
    assert_eq!(views.locate(address.addr()), Some((1, 77)));
}

#[test]
fn a_peer_maps_the_memory_and_learns_when_it_is_gone() {
    let layout = ViewLayout::new(free_base(), 8 * PAGE_BYTES, 2).unwrap();
    let views = MultiView::new("peer", layout).unwrap();
    let peer = MappedBuffer::map(views.fd(), views.status().fd(), 0..layout.bytes, true).unwrap();
    assert!(store_word(&peer, 16, 99));
    let import = MappedBuffer::map(views.fd(), views.status().fd(), 0..layout.bytes, false).unwrap();
    let mut word = [0; 8];
    import.read(16, &mut word).unwrap();
    assert_eq!(u64::from_ne_bytes(word), 99);
    assert!(!peer.revoked());
    drop(views);
    assert!(peer.revoked());
}

#[test]
fn a_clash_names_what_is_in_the_way_and_the_setting() {
    let layout = ViewLayout::new(free_base(), 8 * PAGE_BYTES, 2).unwrap();
    let first = MultiView::new("in-the-way", layout).unwrap();
    let error = MultiView::new("second", layout).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ViewError::Clash { .. }), "{text}");
    for word in ["in-the-way", "MAPWIRE_SHARED_BASE", &format!("{:#x}", layout.base)] {
        assert!(text.contains(word), "{text}");
    }
    drop(first);
    MultiView::new("second", layout).unwrap();
}

#[test]
fn every_page_of_a_large_memory_costs_nothing_until_it_is_touched() {
    let layout = ViewLayout::new(free_base(), 1 << 30, 32).unwrap();
    let views = MultiView::new("large", layout).unwrap();
    assert_eq!(rustix::fs::fstat(views.fd()).unwrap().st_blocks, 0);
}

#[test]
fn a_core_dump_has_what_this_rank_used_once_and_nothing_else() {
    let layout = ViewLayout::new(free_base(), 1 << 30, 2).unwrap();
    let views = std::sync::Arc::new(MultiView::new("dumps", layout).unwrap());
    let pages = PageProtection::new(FaultBackend::Sigsegv, std::sync::Arc::clone(&views)).unwrap();
    let dumped = |page: usize| is_dumped(layout.base + page * PAGE_BYTES);
    assert!(!dumped(0) && !dumped(100_000));
    pages.set(1, 100_000, 2, Access::None, Access::Read).unwrap();
    pages.set(1, layout.pages() - 1, 1, Access::None, Access::Write).unwrap();
    assert!(dumped(100_000) && dumped(100_001) && dumped(layout.pages() - 1));
    assert!(!dumped(0) && !dumped(50_000) && !dumped(layout.pages() / 2));
    for view in 0..2 {
        assert!(!is_dumped(layout.view_range(view).start + 100_000 * PAGE_BYTES));
    }
    // A block that was included once stays so when its pages are closed.
    pages.set(1, 100_000, 2, Access::Read, Access::None).unwrap();
    assert!(dumped(100_000));
}

#[test]
fn a_base_outside_of_user_space_is_explained() {
    let layout = ViewLayout::new(1 << 56, 4096, 1).unwrap();
    let error = MultiView::new("outside", layout).unwrap_err();
    assert!(error.to_string().contains("MAPWIRE_SHARED_BASE"), "{error}");
}

#[test]
fn a_small_limit_of_address_space_is_named() {
    in_child("limit", || {
        lower_limit(rustix::process::Resource::As, 4 << 30);
        let layout = ViewLayout::new(DEFAULT_BASE, 1 << 30, 32).unwrap();
        let error = MultiView::new("limit", layout).unwrap_err();
        let text = error.to_string();
        for word in ["32 views of 1073741824 bytes", "RLIMIT_AS is 4294967296", "ulimit -v"] {
            assert!(text.contains(word), "{text}");
        }
        assert_eq!(count_of("mapwire:limit"), (0, 0));
    });
}

#[test]
fn nothing_is_left_mapped_or_open() {
    for _ in 0..3 {
        let layout = ViewLayout::new(free_base(), 8 * PAGE_BYTES, 5).unwrap();
        let views = MultiView::new("viewleak", layout).unwrap();
        assert_eq!(count_of("viewleak"), (7, 2));
        drop(views);
        assert_eq!(count_of("viewleak"), (0, 0));
        let inside = |r: &crate::procmap::MappedRange| layout.range().contains(&r.start);
        assert!(!crate::maps::mapped_ranges().iter().any(inside));
    }
}
