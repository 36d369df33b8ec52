//! A design and its shape in words: `hierarchical`, `hierarchical,entries=32K,ways=4,prefetch=8`.

use crate::cache::CacheError;
use crate::dynamic_handle::DynamicHandleConfig;
use crate::hierarchical::HierarchicalConfig;
use crate::indexed::IndexedConfig;
use crate::interrupt::InterruptConfig;
use crate::per_process::PerProcessConfig;
use crate::size;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Which design, in which shape.
///
/// As text: the design's name, then options as `name=value`, each after a comma, in any order; an option that is left out has
/// its default. Numbers are [sizes](crate::size::parse), such as `8K` or `64MiB`; switches are `on` or `off`. What it prints as can be read back; options with their defaults are not printed.
///
/// | design | options (default) |
/// |---|---|
/// | `hierarchical` | `entries` (8K), `ways` (1), `line` (1), `offset` (on), `prefetch` (1), `tables` in memory (none: all) |
/// | `shared-cache` | the same but `tables` |
/// | `per-process` | `entries` (2K) |
/// | `interrupt` | `entries` (8K), `ways` (1), `offset` (on), `fill` (1); or `variant=vmmc`: 2K, 2, on, 32 |
/// | `dynamic-handle` | `entries` (16K), `ways` (4), `line` (64), `offset` (off), `cbh` (1K), `pch` (64), `high-water` (none) |
///
/// ```
/// use mapwire_translation::DesignConfig;
/// let config: DesignConfig = "hierarchical,line=1,entries=32K,ways=4,offset=off".parse()?;
/// assert_eq!(config.to_string(), "hierarchical,entries=32K,ways=4,offset=off");
/// let error = "hierarchical,ways=some".parse::<DesignConfig>().unwrap_err();
/// assert!(error.to_string().contains("ways=some"));
/// # Ok::<(), mapwire_translation::ParseDesignError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DesignConfig {
    /// [`Hierarchical`](crate::Hierarchical).
    Hierarchical(HierarchicalConfig),
    /// [`Indexed`](crate::Indexed).
    SharedCache(IndexedConfig),
    /// [`PerProcess`](crate::PerProcess).
    PerProcess(PerProcessConfig),
    /// [`Interrupt`](crate::Interrupt).
    Interrupt(InterruptConfig),
    /// [`DynamicHandle`](crate::DynamicHandle).
    DynamicHandle(DynamicHandleConfig),
}

impl Default for DesignConfig {
    fn default() -> Self {
        DesignConfig::Hierarchical(HierarchicalConfig::default())
    }
}

/// Words that describe no design.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseDesignError {
    /// No design has this name.
    #[error("{name:?} is no translation design; choose one of: {}", NAMES.join(", "))]
    Design {
        /// What was asked for.
        name: String,
    },
    /// The design has no such option.
    #[error("the design {design} has no option {option:?}; it has: {legal}")]
    Option {
        /// The design.
        design: &'static str,
        /// What was asked for.
        option: String,
        /// What it has.
        legal: String,
    },
    /// An option without a value that it can have.
    #[error("{option}={value} is not possible: {option} must be {legal}")]
    Value {
        /// The option.
        option: &'static str,
        /// What was asked for.
        value: String,
        /// What would do.
        legal: &'static str,
    },
    /// The numbers do not go together.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// Names of all designs.
const NAMES: [&str; 5] = [
    "hierarchical",
    "shared-cache",
    "per-process",
    "interrupt",
    "dynamic-handle",
];

/// The option of `interrupt` that chooses other defaults for all others.
const VARIANT: &str = "variant";

impl DesignConfig {
    /// The design's name.
    pub const fn name(&self) -> &'static str {
        NAMES[match self {
            DesignConfig::Hierarchical(_) => 0,
            DesignConfig::SharedCache(_) => 1,
            DesignConfig::PerProcess(_) => 2,
            DesignConfig::Interrupt(_) => 3,
            DesignConfig::DynamicHandle(_) => 4,
        }]
    }

    /// Every design in its default shape.
    pub fn all() -> [DesignConfig; NAMES.len()] {
        [
            DesignConfig::Hierarchical(HierarchicalConfig::default()),
            DesignConfig::SharedCache(IndexedConfig::default()),
            DesignConfig::PerProcess(PerProcessConfig::default()),
            DesignConfig::Interrupt(InterruptConfig::default()),
            DesignConfig::DynamicHandle(DynamicHandleConfig::default()),
        ]
    }

    /// The shape in which all options but the variant have their defaults.
    fn default_of_variant(&self) -> DesignConfig {
        match self {
            DesignConfig::Hierarchical(_) => DesignConfig::Hierarchical(Default::default()),
            DesignConfig::SharedCache(_) => DesignConfig::SharedCache(Default::default()),
            DesignConfig::PerProcess(_) => DesignConfig::PerProcess(Default::default()),
            DesignConfig::Interrupt(config) if config.cache_per_process => {
                DesignConfig::Interrupt(InterruptConfig::VMMC)
            }
            DesignConfig::Interrupt(_) => DesignConfig::Interrupt(Default::default()),
            DesignConfig::DynamicHandle(_) => DesignConfig::DynamicHandle(Default::default()),
        }
    }

    /// The design's options, in the order in which they are printed.
    fn options(&mut self) -> Vec<(&'static str, Value<'_>)> {
        let (cache, has_lines, others) = match self {
            DesignConfig::Hierarchical(config) => (
                &mut config.cache,
                true,
                [
                    Some(("prefetch", Value::Count(&mut config.prefetch))),
                    Some(("tables", Value::Limit(&mut config.tables_in_memory))),
                    None,
                ],
            ),
            DesignConfig::SharedCache(config) => (
                &mut config.cache,
                true,
                [
                    Some(("prefetch", Value::Count(&mut config.prefetch))),
                    None,
                    None,
                ],
            ),
            DesignConfig::PerProcess(config) => {
                return Vec::from([("entries", Value::Entries(&mut config.entries))]);
            }
            DesignConfig::Interrupt(config) => (
                &mut config.cache,
                false,
                [
                    Some(("fill", Value::Count(&mut config.fill_pages))),
                    None,
                    None,
                ],
            ),
            DesignConfig::DynamicHandle(config) => (
                &mut config.cache,
                true,
                [
                    Some(("cbh", Value::Size(&mut config.cbh_entries))),
                    Some(("pch", Value::Size(&mut config.pch_entries))),
                    Some(("high-water", Value::Bytes(&mut config.high_water_bytes))),
                ],
            ),
        };
        let line = ("line", Value::Size(&mut cache.line_entries));
        let of_cache = [
            Some(("entries", Value::Size(&mut cache.entries))),
            Some(("ways", Value::Size(&mut cache.ways))),
            has_lines.then_some(line),
            Some(("offset", Value::Switch(&mut cache.offset_per_process))),
        ];
        of_cache.into_iter().chain(others).flatten().collect()
    }

    /// Itself, if such a design can be built.
    ///
    /// # Errors
    /// The number that must be changed.
    pub fn checked(self) -> Result<Self, CacheError> {
        match &self {
            DesignConfig::Hierarchical(config) => config.checked().map(drop)?,
            DesignConfig::SharedCache(config) => config.checked().map(drop)?,
            DesignConfig::PerProcess(config) => config.checked().map(drop)?,
            DesignConfig::Interrupt(config) => config.checked().map(drop)?,
            DesignConfig::DynamicHandle(config) => config.checked().map(drop)?,
        }
        Ok(self)
    }
}

/// A value of an option, to be set or printed.
enum Value<'a> {
    /// A power of two.
    Size(&'a mut usize),
    Entries(&'a mut usize),
    Count(&'a mut u32),
    Switch(&'a mut bool),
    Limit(&'a mut Option<u32>),
    Bytes(&'a mut Option<u64>),
}

impl Value<'_> {
    /// False if the word is no such value.
    fn set(&mut self, word: &str) -> bool {
        let number = || size::parse(word).ok();
        match self {
            Value::Size(size) | Value::Entries(size) => {
                set(*size, number().and_then(|n| usize::try_from(n).ok()))
            }
            Value::Count(count) => set(*count, number().and_then(|n| u32::try_from(n).ok())),
            Value::Switch(switch) => set(
                *switch,
                match word {
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => None,
                },
            ),
            Value::Limit(limit) => set(
                *limit,
                match word {
                    "none" => Some(None),
                    _ => number().and_then(|n| u32::try_from(n).ok()).map(Some),
                },
            ),
            Value::Bytes(bytes) => set(
                *bytes,
                match word {
                    "none" => Some(None),
                    _ => number().map(Some),
                },
            ),
        }
    }

    /// What it can be.
    fn legal(&self) -> &'static str {
        match self {
            Value::Size(_) => "a power of two, such as 1, 64 or 8K",
            Value::Entries(_) => "a number, such as 2K",
            Value::Count(_) => "a number, such as 8",
            Value::Switch(_) => "on or off",
            Value::Limit(_) => "a number, such as 16, or none",
            Value::Bytes(_) => "a size, such as 64MiB, or none",
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Size(size) | Value::Entries(size) => write_number(f, **size as u64),
            Value::Count(count) => write_number(f, u64::from(**count)),
            Value::Switch(switch) => f.write_str(if **switch { "on" } else { "off" }),
            Value::Limit(Some(limit)) => write_number(f, u64::from(*limit)),
            Value::Limit(None) | Value::Bytes(None) => f.write_str("none"),
            Value::Bytes(Some(bytes)) => write_bytes(f, *bytes),
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) -> bool {
    let given = value.is_some();
    if let Some(value) = value {
        *place = value;
    }
    given
}

fn write_number(f: &mut fmt::Formatter<'_>, number: u64) -> fmt::Result {
    match number {
        0 => f.write_str("0"),
        n if n % (1 << 20) == 0 => write!(f, "{}M", n >> 20),
        n if n % (1 << 10) == 0 => write!(f, "{}K", n >> 10),
        n => write!(f, "{n}"),
    }
}

const BYTE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    for (name, unit) in BYTE_UNITS {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return write!(f, "{}{name}", bytes / unit);
        }
    }
    write!(f, "{bytes}")
}

impl fmt::Display for DesignConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let DesignConfig::Interrupt(config) = self
            && config.cache_per_process
        {
            write!(f, ",{VARIANT}=vmmc")?;
        }
        let mut shape = *self;
        let mut default = self.default_of_variant();
        let options = shape.options().into_iter().zip(default.options());
        for ((option, value), (_, default)) in options {
            let value = value.to_string();
            if value != default.to_string() {
                write!(f, ",{option}={value}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for DesignConfig {
    type Err = ParseDesignError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let known = DesignConfig::all().into_iter().find(|it| it.name() == name);
        let mut config = known.ok_or_else(|| ParseDesignError::Design { name: name.into() })?;
        let pairs = words.map(|word| word.split_once('=').unwrap_or((word, "")));
        let is_variant = |pair: &(&str, &str)| name == NAMES[3] && pair.0 == VARIANT;
        // Wherever it stands, the variant comes first: the others change it.
        for (_, variant) in pairs.clone().filter(is_variant) {
            config = parse_variant(variant)?;
        }
        for (option, given) in pairs.filter(|pair| !is_variant(pair)) {
            set_option(&mut config, option, given)?;
        }
        Ok(config.checked()?)
    }
}

fn parse_variant(word: &str) -> Result<DesignConfig, ParseDesignError> {
    match word {
        "utlb" => Ok(DesignConfig::Interrupt(InterruptConfig::default())),
        "vmmc" => Ok(DesignConfig::Interrupt(InterruptConfig::VMMC)),
        _ => Err(ParseDesignError::Value {
            option: VARIANT,
            value: word.into(),
            legal: "utlb or vmmc",
        }),
    }
}

fn set_option(config: &mut DesignConfig, name: &str, given: &str) -> Result<(), ParseDesignError> {
    let design = config.name();
    let mut options = config.options();
    let Some((option, value)) = options.iter_mut().find(|it| it.0 == name) else {
        let variant = (design == NAMES[3]).then_some(VARIANT);
        let legal = options.iter().map(|it| it.0).chain(variant);
        return Err(ParseDesignError::Option {
            design,
            option: name.into(),
            legal: legal.collect::<Vec<_>>().join(", "),
        });
    };
    match value.set(given) {
        true => Ok(()),
        false => Err(ParseDesignError::Value {
            option,
            value: given.into(),
            legal: value.legal(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyDesign, CacheConfig, TranslationDesign};
    use proptest::prelude::*;

    #[test]
    fn each_design_is_found_by_its_name_and_has_it() {
        assert_eq!(DesignConfig::all().map(|config| config.name()), NAMES);
        for config in DesignConfig::all() {
            assert_eq!(config.to_string(), config.name());
            assert_eq!(config.name().parse(), Ok(config));
            assert_eq!(AnyDesign::new(&config).unwrap().name(), config.name());
        }
    }

    #[test]
    fn words_that_describe_no_design_are_named_with_what_would_do() {
        for (text, parts) in [
            ("", &["\"\"", "hierarchical"][..]),
            ("hierarchic", &["\"hierarchic\"", "hierarchical"]),
            (
                "hierarchical,way=2",
                &["hierarchical", "\"way\"", "entries, ways"],
            ),
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
            (
                "interrupt,line=2",
                &["\"line\"", "entries, ways, offset, fill, variant"],
            ),
            ("interrupt,variant=x", &["variant=x", "utlb or vmmc"]),
            ("interrupt,fill=1K", &["1024 pages", "1 to 512"]),
            ("dynamic-handle,cbh=3", &["3 entries"]),
            (
                "dynamic-handle,high-water=64Q",
                &["high-water=64Q", "64MiB"],
            ),
            ("dynamic-handle,ways=512", &["512 ways", "256 lines"]),
        ] {
            let error = text.parse::<DesignConfig>().unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{text:?}: no {part:?} in {error:?}");
            }
        }
    }

    #[test]
    fn options_are_taken_in_any_order_and_printed_in_one() {
        for (text, printed) in [
            ("interrupt,variant=utlb", "interrupt"),
            (
                "interrupt,fill=8,variant=vmmc,entries=4K",
                "interrupt,variant=vmmc,entries=4K,fill=8",
            ),
            (
                "interrupt,variant=vmmc,ways=1,fill=32",
                "interrupt,variant=vmmc,ways=1",
            ),
            (
                "dynamic-handle,high-water=65536KiB,line=8",
                "dynamic-handle,line=8,high-water=64MiB",
            ),
            (
                "dynamic-handle,offset=on,high-water=4097",
                "dynamic-handle,offset=on,high-water=4097",
            ),
            (
                "shared-cache,prefetch=8,ways=4,line=1,offset=on,entries=8K",
                "shared-cache,ways=4,prefetch=8",
            ),
            ("per-process,entries=3000", "per-process,entries=3000"),
        ] {
            assert_eq!(text.parse::<DesignConfig>().unwrap().to_string(), printed);
        }
    }

    fn cache(base: CacheConfig, has_lines: bool) -> impl Strategy<Value = CacheConfig> {
        (0usize..29, 0usize..11, 0usize..29, any::<bool>()).prop_map(
            move |(shift, line, ways, offset)| {
                let line = if has_lines { line.min(shift) } else { 0 };
                base.with_entries(1 << shift)
                    .with_line_entries(1 << line)
                    .with_ways(1 << ways.min(shift - line))
                    .with_offset_per_process(offset)
            },
        )
    }

    fn any_design() -> impl Strategy<Value = DesignConfig> {
        let handles = (0usize..29, 0usize..29, any::<Option<u64>>());
        let base = CacheConfig::default();
        prop_oneof![
            (cache(base, true), 1u32..1025, prop::option::of(1u32..5000)).prop_map(
                |(cache, prefetch, tables)| {
                    let config = HierarchicalConfig::from(cache).with_prefetch(prefetch);
                    DesignConfig::Hierarchical(config.with_tables_in_memory(tables))
                }
            ),
            (cache(base, true), 1u32..1025).prop_map(|(cache, prefetch)| {
                DesignConfig::SharedCache(IndexedConfig::from(cache).with_prefetch(prefetch))
            }),
            (1usize..1 << 28).prop_map(|entries| {
                DesignConfig::PerProcess(PerProcessConfig::default().with_entries(entries))
            }),
            (cache(base, false), 1u32..513, any::<bool>()).prop_map(|(cache, fill, vmmc)| {
                let variant = if vmmc {
                    InterruptConfig::VMMC
                } else {
                    InterruptConfig::default()
                };
                DesignConfig::Interrupt(variant.with_cache(cache).with_fill_pages(fill))
            }),
            (cache(base, true), handles).prop_map(|(cache, (cbh, pch, high_water))| {
                let config = DynamicHandleConfig::default()
                    .with_cache(cache)
                    .with_handles(1 << cbh, 1 << pch);
                DesignConfig::DynamicHandle(config.with_high_water_bytes(high_water))
            }),
        ]
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn what_it_prints_as_is_read_back(config in any_design()) {
            prop_assert_eq!(config.to_string().parse(), Ok(config));
        }
    }
}
