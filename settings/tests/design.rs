//! Designs in words.

use mapwire_settings::{DesignText, parse_design};
use mapwire_translation::{
    AnyDesign, CacheConfig, DesignConfig, DynamicHandleConfig, HierarchicalConfig, IndexedConfig, InterruptConfig,
    PerProcessConfig, TranslationDesign,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[test]
fn each_design_is_found_by_its_name_and_has_it() {
    for config in DesignConfig::all() {
        assert_eq!(DesignText(config).to_string(), config.name());
        assert_eq!(parse_design(config.name()), Ok(config));
        assert_eq!(AnyDesign::new(&config).unwrap().name(), config.name());
    }
}

#[test]
fn words_that_describe_no_design_are_named_with_what_would_do() {
    for (text, parts) in [
        ("", &["\"\"", "hierarchical"][..]),
        ("hierarchic", &["\"hierarchic\"", "hierarchical"]),
        ("hierarchical,way=2", &["hierarchical", "\"way\"", "entries, ways"]),
        ("hierarchical,", &["\"\"", "entries, ways"]),
        ("hierarchical,entries", &["entries=", "power of two"]),
        ("hierarchical,entries=8Q", &["entries=8Q", "8K"]),
        ("hierarchical,entries=99999999999999999999", &["entries=9"]),
        ("hierarchical,offset=yes", &["offset=yes", "on or off"]),
        ("hierarchical,entries=3", &["3 entries", "power of two"]),
        ("hierarchical,entries=64,line=128", &["lines of 128", "64"]),
        ("hierarchical,entries=64,ways=128", &["128 ways", "1 to 64"]),
        ("hierarchical,prefetch=0", &["0 entries", "1 to 1024"]),
        ("hierarchical,variant=vmmc", &["\"variant\"", "prefetch"]),
        ("hierarchical,tables=0", &["second-level table"]),
        ("hierarchical,tables=some", &["tables=some", "none"]),
        ("per-process,entries=0", &["0 entries"]),
        ("per-process,line=2", &["\"line\"", "entries"]),
        ("interrupt,line=2", &["\"line\"", "entries, ways, offset, fill, variant"]),
        ("interrupt,variant=x", &["variant=x", "utlb or vmmc"]),
        ("interrupt,fill=1K", &["1024 pages", "1 to 512"]),
        ("dynamic-handle,cbh=3", &["3 entries"]),
        ("dynamic-handle,high-water=64Q", &["high-water=64Q", "64MiB"]),
        ("dynamic-handle,ways=512", &["512 ways", "256 lines"]),
    ] {
        let error = parse_design(text).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text:?}: no {part:?} in {error:?}");
        }
    }
}

#[test]
fn options_are_taken_in_any_order_and_printed_in_one() {
    for (text, printed) in [
        ("interrupt,variant=utlb", "interrupt"),
        ("interrupt,fill=8,variant=vmmc,entries=4K", "interrupt,variant=vmmc,entries=4K,fill=8"),
        ("interrupt,variant=vmmc,ways=1,fill=32", "interrupt,variant=vmmc,ways=1"),
        ("dynamic-handle,high-water=65536KiB,line=8", "dynamic-handle,line=8,high-water=64M"),
        ("dynamic-handle,offset=on,high-water=4097", "dynamic-handle,offset=on,high-water=4097"),
        ("shared-cache,prefetch=8,ways=4,line=1,offset=on,entries=8K", "shared-cache,ways=4,prefetch=8"),
        ("per-process,entries=3000", "per-process,entries=3000"),
    ] {
        assert_eq!(DesignText(parse_design(text).unwrap()).to_string(), printed);
    }
}

fn cache(base: CacheConfig, has_lines: bool) -> impl Strategy<Value = CacheConfig> {
    (0usize..29, 0usize..11, 0usize..29, any::<bool>()).prop_map(move |(shift, line, ways, offset)| {
        let line = if has_lines { line.min(shift) } else { 0 };
        base.with_entries(1 << shift)
            .with_line_entries(1 << line)
            .with_ways(1 << ways.min(shift - line))
            .with_offset_per_process(offset)
    })
}

fn any_design() -> impl Strategy<Value = DesignConfig> {
    let handles = (0usize..29, 0usize..29, any::<Option<u64>>());
    let base = CacheConfig::default();
    prop_oneof![
        (cache(base, true), 1u32..1025, prop::option::of(1u32..5000)).prop_map(|(cache, prefetch, tables)| {
            let config = HierarchicalConfig::from(cache).with_prefetch(prefetch);
            DesignConfig::Hierarchical(config.with_tables_in_memory(tables))
        }),
        (cache(base, true), 1u32..1025).prop_map(|(cache, prefetch)| {
            DesignConfig::SharedCache(IndexedConfig::from(cache).with_prefetch(prefetch))
        }),
        (1usize..1 << 28)
            .prop_map(|entries| { DesignConfig::PerProcess(PerProcessConfig::default().with_entries(entries)) }),
        (cache(base, false), 1u32..513, any::<bool>()).prop_map(|(cache, fill, vmmc)| {
            let variant = if vmmc { InterruptConfig::VMMC } else { InterruptConfig::default() };
            DesignConfig::Interrupt(variant.with_cache(cache).with_fill_pages(fill))
        }),
        (cache(base, true), handles).prop_map(|(cache, (cbh, pch, high_water))| {
            let config = DynamicHandleConfig::default().with_cache(cache).with_handles(1 << cbh, 1 << pch);
            DesignConfig::DynamicHandle(config.with_high_water_bytes(high_water))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_it_prints_as_is_read_back(config in any_design()) {
        prop_assert_eq!(parse_design(&DesignText(config).to_string()), Ok(config));
    }
}
