//! Random traces: every design against a naive model, and the designs against one another.

use crate::cache::CacheConfig;
use crate::dynamic_handle::DynamicHandleConfig;
use crate::indexed::IndexedConfig;
use crate::interrupt::InterruptConfig;
use crate::limit::{PinLimit, PinRules};
use crate::page::{Page, PageRange, Process};
use crate::per_process::PerProcessConfig;
use crate::policy::Policy;
use crate::{AnyDesign, Counters, DesignConfig, Hosts, SimulatedPinner, TranslationDesign};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

const PROCESSES: u16 = 3;

type Trace = Vec<(Process, Page)>;

/// Lookups that return to pages used before.
fn trace() -> impl Strategy<Value = Trace> {
    let page = prop_oneof![3 => 0u64..12, 2 => 0u64..48];
    let lookup = (0..PROCESSES, page).prop_map(|(process, page)| (Process(process), Page(page)));
    prop::collection::vec(lookup, 0..300)
}

/// Sets of one to eight ways, lines of one entry.
fn cache() -> impl Strategy<Value = CacheConfig> {
    (0u32..6, 0u32..4, any::<bool>()).prop_map(|(shift, ways, offset)| {
        CacheConfig::default().with_entries(1 << shift).with_ways(1 << ways.min(shift)).with_offset_per_process(offset)
    })
}

struct World {
    nic: AnyDesign,
    hosts: Hosts,
    pinner: SimulatedPinner,
}

impl World {
    fn new(config: DesignConfig, rules: PinRules) -> Self {
        let mut world =
            World { nic: AnyDesign::new(&config).unwrap(), hosts: Hosts::new(), pinner: SimulatedPinner::default() };
        for process in (0..PROCESSES).map(Process) {
            world.hosts.open(&mut world.nic, process, rules).unwrap();
        }
        world
    }

    fn prepare(&mut self, process: Process, range: PageRange) {
        let side = self.hosts.side_mut(process).unwrap();
        side.prepare(&mut self.nic, &mut self.pinner, range).unwrap();
    }

    fn look_up(&mut self, process: Process, page: Page) {
        self.prepare(process, PageRange::single(page));
        let frame = self.hosts.translate(&mut self.nic, &mut self.pinner, process, page);
        assert!(!frame.unwrap().is_garbage());
    }

    fn counters(&self) -> Counters {
        self.nic.counters() + self.hosts.counters()
    }
}

fn run(config: DesignConfig, rules: PinRules, trace: &Trace) -> Counters {
    let mut world = World::new(config, rules);
    for &(process, page) in trace {
        world.look_up(process, page);
    }
    world.counters()
}

fn hierarchical(cache: CacheConfig) -> DesignConfig {
    DesignConfig::Hierarchical(cache.into())
}

fn interrupt(cache: CacheConfig) -> DesignConfig {
    DesignConfig::Interrupt(InterruptConfig::default().with_cache(cache))
}

fn limited(pages: u64) -> PinRules {
    PinRules::default().with_limit(PinLimit::Pages(pages))
}

/// Each set as a list, most recently used first.
struct Sets<K> {
    ways: usize,
    sets: BTreeMap<usize, Vec<K>>,
}

impl<K: Copy + PartialEq> Sets<K> {
    fn new(ways: usize) -> Self {
        Sets { ways, sets: BTreeMap::new() }
    }

    /// Whether it was present, and if not, what was evicted for it.
    fn look_up(&mut self, set: usize, key: K) -> (bool, Option<K>) {
        let set = self.sets.entry(set).or_default();
        let at = set.iter().position(|other| *other == key);
        if let Some(at) = at {
            set.remove(at);
        }
        set.insert(0, key);
        let evicted = if set.len() > self.ways { set.pop() } else { None };
        (at.is_some(), evicted)
    }

    fn has(&self, set: usize, key: K) -> bool {
        self.sets.get(&set).is_some_and(|set| set.contains(&key))
    }

    fn remove(&mut self, key: K) {
        self.sets.values_mut().for_each(|set| set.retain(|other| *other != key));
    }
}

proptest! {
    #![proptest_config(crate::testing::seeded())]

    /// UTLB Table 4: the same cache sees the same references.
    #[test]
    fn without_a_limit_utlb_and_interrupts_miss_alike_as_a_list_for_each_set_does(cache in cache(), trace in trace()) {
        let mut sets = Sets::new(cache.ways);
        let mut misses = 0;
        for &(process, page) in &trace {
            misses += u64::from(!sets.look_up(cache.set_of(process, page), (process, page)).0);
        }
        let pages: BTreeSet<_> = trace.iter().collect();
        let resident: u64 = sets.sets.values().map(|set| set.len() as u64).sum();
        let utlb = run(hierarchical(cache), PinRules::default(), &trace);
        let expected = Counters {
            lookups: trace.len() as u64,
            check_misses: pages.len() as u64,
            nic_misses: misses,
            pins: pages.len() as u64,
            pinned_pages: pages.len() as u64,
            ..Counters::default()
        };
        prop_assert_eq!(utlb, expected);
        let interrupt = run(interrupt(cache), PinRules::default(), &trace);
        let expected = Counters {
            check_misses: 0,
            interrupts: misses,
            pins: misses,
            unpins: misses - resident,
            pinned_pages: resident,
            ..expected
        };
        prop_assert_eq!(interrupt, expected);
    }

    #[test]
    fn a_fully_associative_cache_misses_by_stack_distance(shift in 0u32..6, trace in trace()) {
        let entries = 1 << shift;
        let cache = CacheConfig::default().with_entries(entries).with_ways(entries);
        let mut stack: Trace = Vec::new();
        let mut misses = 0;
        for &looked_up in &trace {
            let distance = stack.iter().position(|other| *other == looked_up);
            misses += u64::from(distance.is_none_or(|distance| distance >= entries));
            distance.map(|distance| stack.remove(distance));
            stack.insert(0, looked_up);
        }
        prop_assert_eq!(run(hierarchical(cache), PinRules::default(), &trace).nic_misses, misses);
    }

    /// UTLB Table 5: pages unpinned for the limit leave the cache, and miss again.
    #[test]
    fn under_a_limit_utlb_misses_in_the_nic_at_least_as_often_as_in_the_check(
        cache in cache(), pages in 1u64..20, policy in prop::sample::select(&Policy::PREDEFINED[..]), trace in trace(),
    ) {
        let rules = limited(pages).with_policy(policy);
        let counters = run(hierarchical(cache), rules, &trace);
        prop_assert!(counters.nic_misses >= counters.check_misses);
        prop_assert_eq!(counters.pins, counters.check_misses);
        // The library never sees the cache.
        let other = run(hierarchical(cache.with_entries(64).with_ways(1)), rules, &trace);
        prop_assert_eq!((counters.pins, counters.unpins), (other.pins, other.unpins));
    }

    #[test]
    fn under_a_limit_interrupts_agree_with_a_list_of_pins_beside_those_of_the_sets(
        cache in cache(), limit in 1usize..12, trace in trace(),
    ) {
        let mut sets = Sets::new(cache.ways);
        let mut pinned: BTreeMap<Process, Vec<Page>> = BTreeMap::new();
        let (mut misses, mut unpins) = (0, 0);
        for &(process, page) in &trace {
            let set = cache.set_of(process, page);
            let before = sets.sets.get(&set).cloned().unwrap_or_default();
            if before.contains(&(process, page)) {
                sets.look_up(set, (process, page));
                continue;
            }
            misses += 1;
            let own = pinned.entry(process).or_default();
            if own.len() == limit {
                // Pages that the fill evicts make room, if they are of this process; else the ones pinned first.
                let pushed = before.get(cache.ways - 1).filter(|pushed| pushed.0 == process);
                let gone = pushed.map_or(own[0], |pushed| pushed.1);
                own.retain(|other| *other != gone);
                sets.remove((process, gone));
                unpins += 1;
            }
            own.push(page);
            if let (_, Some((owner, gone))) = sets.look_up(set, (process, page)) {
                pinned.get_mut(&owner).unwrap().retain(|other| *other != gone);
                unpins += 1;
            }
        }
        let counters = run(interrupt(cache), limited(limit as u64), &trace);
        prop_assert_eq!((counters.nic_misses, counters.pins, counters.unpins), (misses, misses, unpins));
    }

    #[test]
    fn per_process_tables_pin_as_utlb_does_under_a_limit_of_their_size(
        entries in 1usize..20, policy in prop::sample::select(&Policy::PREDEFINED[..]), trace in trace(),
    ) {
        let config = DesignConfig::PerProcess(PerProcessConfig::default().with_entries(entries));
        let counters = run(config, PinRules::default().with_policy(policy), &trace);
        let rules = limited(entries as u64).with_policy(policy);
        let utlb = run(hierarchical(CacheConfig::default()), rules, &trace);
        prop_assert_eq!(counters, Counters { nic_misses: 0, ..utlb });
    }

    /// If every process's buffer was pinned whole, and in order, indexes are page numbers.
    #[test]
    fn by_index_the_shared_cache_is_that_of_utlb_if_indexes_are_pages(
        cache in cache(), line in 0u32..3, prefetch in 1u32..9, trace in trace(),
    ) {
        let line = (1 << line).min(cache.entries / cache.ways);
        let cache = cache.with_line_entries(line);
        let by_index = DesignConfig::SharedCache(IndexedConfig::from(cache).with_prefetch(prefetch));
        let config = crate::HierarchicalConfig::from(cache).with_prefetch(prefetch);
        let counters = [by_index, DesignConfig::Hierarchical(config)].map(|config| {
            let mut world = World::new(config, PinRules::default());
            for process in (0..PROCESSES).map(Process) {
                world.prepare(process, PageRange { first: Page(0), count: 48 });
            }
            trace.iter().for_each(|(process, page)| world.look_up(*process, *page));
            prop_assert_eq!(world.nic.fragmented_pages(), 0);
            Ok(world.counters())
        });
        let [by_index, by_page] = counters;
        prop_assert_eq!(by_index?, by_page?);
    }

    #[test]
    fn dynamic_handles_agree_with_a_list_of_lines_for_each_set(
        cache in cache(), line in 0u32..3, trace in trace(), receives in prop::collection::vec(any::<bool>(), 300),
    ) {
        let line = (1u64 << line).min((cache.entries / cache.ways) as u64);
        let cache = cache.with_line_entries(line as usize);
        let config = DynamicHandleConfig::default().with_cache(cache);
        let mut world = World::new(DesignConfig::DynamicHandle(config), PinRules::default());
        let mut sets = Sets::new(cache.ways);
        let mut seen = BTreeSet::new();
        // Send and receive, cold and other.
        let mut misses = [[0; 2]; 2];
        for (&(process, page), receives) in trace.iter().zip(receives) {
            let World { nic, hosts, pinner } = &mut world;
            let found = match receives {
                true => hosts.translate_receive(nic, pinner, process, page),
                false => hosts.translate(nic, pinner, process, page),
            };
            prop_assert!(!found.unwrap().is_garbage());
            let key = (process, page.0 / line);
            if !sets.look_up(cache.set_of(process, page), key).0 {
                misses[usize::from(receives)][usize::from(!seen.insert(key))] += 1;
            }
        }
        let counters = world.counters();
        let handles = counters.handles;
        prop_assert_eq!(misses[0], [handles.send_cold_misses, handles.send_other_misses]);
        prop_assert_eq!(misses[1], [handles.receive_cold_misses, handles.receive_other_misses]);
        let all: u64 = misses.iter().flatten().sum();
        prop_assert_eq!((counters.nic_misses, counters.interrupts), (all, all));
        prop_assert_eq!((counters.pins, counters.unpins), (seen.len() as u64 * line, 0));
    }

    #[test]
    fn prefetch_agrees_with_a_list_for_each_set(cache in cache(), prefetch in 1u32..9, trace in trace()) {
        let mut sets = Sets::new(cache.ways);
        let mut installed = BTreeSet::new();
        let mut misses = 0;
        for &(process, page) in &trace {
            installed.insert((process, page));
            let key = (process, page);
            if sets.has(cache.set_of(process, page), key) {
                sets.look_up(cache.set_of(process, page), key);
                continue;
            }
            misses += 1;
            for n in (page.0..page.0 + u64::from(prefetch)).rev() {
                let key = (process, Page(n));
                let set = cache.set_of(process, key.1);
                if installed.contains(&key) && !sets.has(set, key) {
                    sets.look_up(set, key);
                }
            }
        }
        let config = crate::HierarchicalConfig::from(cache).with_prefetch(prefetch);
        let counters = run(DesignConfig::Hierarchical(config), PinRules::default(), &trace);
        prop_assert_eq!(counters.nic_misses, misses);
    }
}
