//! A design and its shape in words: `hierarchical`, `hierarchical,entries=32K,ways=4,prefetch=8`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use mapwire_translation::{CacheConfig, CacheError, DesignConfig, InterruptConfig};

use super::size;

/// Words that describe no design.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what each field is")]
pub enum ParseDesignError {
    /// No design has this name.
    #[error("{name:?} is not a translation design; choose one of: {}", names())]
    Design { name: String },
    /// The design has no such option.
    #[error("the design {design} has no option {option:?}; it has: {legal}")]
    Option { design: &'static str, option: String, legal: String },
    /// An option without a value that it can have.
    #[error("{option}={value} is not possible: {option} must be {legal}")]
    Value { option: &'static str, value: String, legal: &'static str },
    /// The numbers do not go together.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

fn names() -> String {
    DesignConfig::all().map(|design| design.name()).join(", ")
}

/// The option of `interrupt` that chooses other defaults for all others.
const VARIANT: &str = "variant";

/// Reads a design: its name, then options as `name=value`, each after a comma, in any order; an option that is left out has its
/// default. Numbers are [sizes](size::parse), such as `8K` or `64MiB`; switches are `on` or `off`.
///
/// | design | options (default) |
/// |---|---|
/// | `hierarchical` | `entries` (8K), `ways` (1), `line` (1), `offset` (on), `prefetch` (1), `tables` in memory (none: all) |
/// | `shared-cache` | the same but `tables` |
/// | `per-process` | `entries` (2K) |
/// | `interrupt` | `entries` (8K), `ways` (1), `offset` (on), `fill` (1); or `variant=vmmc`: 2K, 2, on, 32 |
/// | `dynamic-handle` | `entries` (16K), `ways` (4), `line` (64), `offset` (off), `cbh` (1K), `pch` (64), `high-water` (none) |
///
/// # Errors
/// The word that is wrong, and what would do.
pub fn parse_design(text: &str) -> Result<DesignConfig, ParseDesignError> {
    let mut words = text.split(',');
    let name = words.next().unwrap_or_default();
    let known = DesignConfig::all().into_iter().find(|it| it.name() == name);
    let mut design = known.ok_or_else(|| ParseDesignError::Design { name: name.into() })?;
    let pairs = words.map(|word| word.split_once('=').unwrap_or((word, "")));
    let has_variants = matches!(design, DesignConfig::Interrupt(_));
    let is_variant = |pair: &(&str, &str)| has_variants && pair.0 == VARIANT;
    // Wherever it stands, the variant comes first: the others change it.
    for (_, variant) in pairs.clone().filter(is_variant) {
        design = DesignConfig::Interrupt(match variant {
            "utlb" => InterruptConfig::default(),
            "vmmc" => InterruptConfig::VMMC,
            _ => {
                return Err(ParseDesignError::Value { option: VARIANT, value: variant.into(), legal: "utlb or vmmc" });
            }
        });
    }
    for (name, given) in pairs.filter(|pair| !is_variant(pair)) {
        let mut options = options(&mut design);
        let Some((option, value)) = options.iter_mut().find(|it| it.0 == name) else {
            let variant = has_variants.then_some(VARIANT);
            let legal: Vec<_> = options.iter().map(|it| it.0).chain(variant).collect();
            return Err(ParseDesignError::Option {
                option: name.into(),
                legal: legal.join(", "),
                design: design.name(),
            });
        };
        if !value.set(given) {
            return Err(ParseDesignError::Value { option, value: given.into(), legal: value.legal() });
        }
    }
    Ok(design.checked()?)
}

/// A design in words that [`parse_design`] reads back. Options with their defaults are left out.
///
/// ```
/// use mapwire_settings::{DesignText, parse_design};
/// let design = parse_design("hierarchical,line=1,entries=32K,ways=4,offset=off")?;
/// assert_eq!(DesignText(design).to_string(), "hierarchical,entries=32K,ways=4,offset=off");
/// let error = parse_design("hierarchical,ways=some").unwrap_err();
/// assert!(error.to_string().contains("ways=some"));
/// # Ok::<(), mapwire_settings::ParseDesignError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DesignText(pub DesignConfig);

impl fmt::Display for DesignText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut design = self.0;
        f.write_str(design.name())?;
        let same = |it: &DesignConfig| it.name() == design.name();
        let mut default = DesignConfig::all().into_iter().find(same).unwrap_or_default();
        if let DesignConfig::Interrupt(config) = design
            && config.cache_per_process
        {
            write!(f, ",{VARIANT}=vmmc")?;
            default = DesignConfig::Interrupt(InterruptConfig::VMMC);
        }
        for ((option, value), (_, default)) in options(&mut design).iter().zip(options(&mut default)) {
            let value = value.text();
            if value != default.text() {
                write!(f, ",{option}={value}")?;
            }
        }
        Ok(())
    }
}

type Options<'a> = Vec<(&'static str, Value<'a>)>;

/// A design's options, in the order in which they are printed.
fn options(design: &mut DesignConfig) -> Options<'_> {
    match design {
        DesignConfig::Hierarchical(config) => {
            let mut all = of_cache(&mut config.cache, true);
            all.push(("prefetch", Value::Count(&mut config.prefetch)));
            all.push(("tables", Value::Limit(&mut config.tables_in_memory)));
            all
        }
        DesignConfig::SharedCache(config) => {
            let mut all = of_cache(&mut config.cache, true);
            all.push(("prefetch", Value::Count(&mut config.prefetch)));
            all
        }
        DesignConfig::PerProcess(config) => Vec::from([("entries", Value::Entries(&mut config.entries))]),
        DesignConfig::Interrupt(config) => {
            let mut all = of_cache(&mut config.cache, false);
            all.push(("fill", Value::Count(&mut config.fill_pages)));
            all
        }
        DesignConfig::DynamicHandle(config) => {
            let mut all = of_cache(&mut config.cache, true);
            all.push(("cbh", Value::Size(&mut config.cbh_entries)));
            all.push(("pch", Value::Size(&mut config.pch_entries)));
            all.push(("high-water", Value::Bytes(&mut config.high_water_bytes)));
            all
        }
    }
}

fn of_cache(cache: &mut CacheConfig, has_lines: bool) -> Options<'_> {
    let line = ("line", Value::Size(&mut cache.line_entries));
    let all = [
        Some(("entries", Value::Size(&mut cache.entries))),
        Some(("ways", Value::Size(&mut cache.ways))),
        has_lines.then_some(line),
        Some(("offset", Value::Switch(&mut cache.offset_per_process))),
    ];
    all.into_iter().flatten().collect()
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
        match self {
            Value::Size(it) | Value::Entries(it) => put(*it, number(word)),
            Value::Count(it) => put(*it, number(word)),
            Value::Switch(it) => {
                **it = word == "on";
                word == "on" || word == "off"
            }
            Value::Limit(it) => put(*it, number_or_none(word)),
            Value::Bytes(it) => put(*it, number_or_none(word)),
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

    fn text(&self) -> String {
        let number = match self {
            Value::Switch(it) => return if **it { "on" } else { "off" }.to_string(),
            Value::Size(it) | Value::Entries(it) => Some(**it as u64),
            Value::Count(it) => Some(u64::from(**it)),
            Value::Limit(it) => it.map(u64::from),
            Value::Bytes(it) => **it,
        };
        number.map_or_else(|| "none".to_string(), size::show)
    }
}

fn put<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

fn number<T: TryFrom<u64>>(word: &str) -> Option<T> {
    T::try_from(size::parse(word).ok()?).ok()
}

fn number_or_none<T: TryFrom<u64>>(word: &str) -> Option<Option<T>> {
    match word {
        "none" => Some(None),
        _ => number(word).map(Some),
    }
}
