//! Random sequences of all operations on a design, compared with a plain map.

use super::find;
use crate::design::TranslationDesign;
use crate::page::{Frame, Page, Process};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// One step of a random sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Open, if closed.
    Open(Process),
    /// Close, if open.
    Close(Process),
    /// Install, if open.
    Install(Process, Page, Frame),
    /// Remove, if open.
    Remove(Process, Page),
    /// Look up, open or not.
    Lookup(Process, Page),
}

/// `count` steps that follow from the seed: four processes, pages near one another and 2⁶…2³⁰ pages apart.
pub(crate) fn random_ops(seed: u64, count: usize) -> Vec<Op> {
    let mut state = seed;
    let mut draw = |below| draw(&mut state, below);
    (0..count)
        .map(|_| {
            let process = Process(draw(4) as u16);
            let page = Page(draw(12) + (draw(3) << (6 * draw(6))));
            match draw(20) {
                0..2 => Op::Open(process),
                2 if draw(3) == 0 => Op::Close(process),
                2..9 => Op::Install(process, page, Frame(draw(1 << 40))),
                9..12 => Op::Remove(process, page),
                _ => Op::Lookup(process, page),
            }
        })
        .collect()
}

/// A number less than `below` (SplitMix64).
pub(super) fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % below
}

/// Runs the steps on the design and on a plain map, and compares every answer.
///
/// # Panics
/// They differ. The message names the seed and the step.
pub(crate) fn agrees_with_oracle<D: TranslationDesign>(design: &mut D, ops: &[Op], seed: u64) {
    let mut oracle: BTreeMap<Process, BTreeMap<Page, Frame>> = BTreeMap::new();
    let before = design.counters();
    let (mut lookups, mut misses) = (0, 0);
    for (step, &op) in ops.iter().enumerate() {
        let place = || alloc::format!("seed {seed}, step {step}: {op:?}");
        match op {
            Op::Open(process) => {
                let expected = !oracle.contains_key(&process);
                assert_eq!(design.open(process).is_ok(), expected, "{}", place());
                oracle.entry(process).or_default();
            }
            Op::Close(process) => {
                let expected = oracle.remove(&process).is_some();
                assert_eq!(design.close(process).is_ok(), expected, "{}", place());
            }
            Op::Install(process, page, frame) => {
                let installed = design.install(process, page, frame).is_ok();
                let pages = oracle.get_mut(&process);
                assert_eq!(installed, pages.is_some(), "{}", place());
                pages.map(|pages| pages.insert(page, frame));
            }
            Op::Remove(process, page) => {
                let removed = design.remove(process, page).is_ok();
                let pages = oracle.get_mut(&process);
                assert_eq!(removed, pages.is_some(), "{}", place());
                pages.map(|pages| pages.remove(&page));
            }
            Op::Lookup(process, page) => {
                let found = find(design, process, page);
                let pages = oracle.get(&process);
                let expected = pages.and_then(|pages| pages.get(&page)).copied().unwrap_or(Frame::GARBAGE);
                assert_eq!(found.frame, expected, "{}", place());
                assert_eq!(design.installed(process, page), expected, "{}", place());
                lookups += 1;
                misses += u64::from(found.missed);
            }
        }
    }
    let counted = design.counters() - before;
    assert_eq!((counted.lookups, counted.nic_misses), (lookups, misses), "seed {seed}: counters");
}
