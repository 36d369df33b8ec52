//! A design and its shape in words: `hierarchical`, `hierarchical,entries=32K,ways=4,prefetch=8`.

use crate::cache::{CacheConfig, CacheError};
use crate::hierarchical::HierarchicalConfig;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Which design, in which shape.
///
/// As text: the design's name, then options as `name=value`, each after a comma, in any order; an option that is left out has
/// its default. Numbers may end in `K` (1024) or `M` (1024²); switches are `on` or `off`. What it prints as can be read back;
/// options with their defaults are not printed.
///
/// | design | options (default) |
/// |---|---|
/// | `hierarchical` | `entries` (8K), `ways` (1), `line` (1), `offset` (on), `prefetch` (1) |
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
const NAMES: [&str; 1] = ["hierarchical"];

impl DesignConfig {
    /// The design's name.
    pub fn name(&self) -> &'static str {
        match self {
            DesignConfig::Hierarchical(_) => NAMES[0],
        }
    }

    /// Every design in its default shape.
    pub fn all() -> [DesignConfig; NAMES.len()] {
        [DesignConfig::Hierarchical(HierarchicalConfig::default())]
    }

    /// The design's options, in the order in which they are printed.
    fn options(&mut self) -> Vec<(&'static str, Value<'_>)> {
        match self {
            DesignConfig::Hierarchical(config) => {
                let mut options = cache_options(&mut config.cache);
                options.push(("prefetch", Value::Count(&mut config.prefetch)));
                options
            }
        }
    }

    /// Itself, if such a design can be built.
    ///
    /// # Errors
    /// The number that must be changed.
    pub fn checked(self) -> Result<Self, CacheError> {
        match &self {
            DesignConfig::Hierarchical(config) => config.checked().map(drop)?,
        }
        Ok(self)
    }
}

/// A value of an option, to be set or printed.
enum Value<'a> {
    Size(&'a mut usize),
    Count(&'a mut u32),
    Switch(&'a mut bool),
}

fn cache_options(cache: &mut CacheConfig) -> Vec<(&'static str, Value<'_>)> {
    Vec::from([
        ("entries", Value::Size(&mut cache.entries)),
        ("ways", Value::Size(&mut cache.ways)),
        ("line", Value::Size(&mut cache.line_entries)),
        ("offset", Value::Switch(&mut cache.offset_per_process)),
    ])
}

impl Value<'_> {
    /// False if the word is no such value.
    fn set(&mut self, word: &str) -> bool {
        let number = || parse_number(word);
        match self {
            Value::Size(size) => set(*size, number().and_then(|n| usize::try_from(n).ok())),
            Value::Count(count) => set(*count, number().and_then(|n| u32::try_from(n).ok())),
            Value::Switch(switch) => set(
                *switch,
                match word {
                    "on" => Some(true),
                    "off" => Some(false),
                    _ => None,
                },
            ),
        }
    }

    /// What it can be.
    fn legal(&self) -> &'static str {
        match self {
            Value::Size(_) => "a power of two, such as 1, 64 or 8K",
            Value::Count(_) => "a number, such as 8",
            Value::Switch(_) => "on or off",
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Size(size) => write_number(f, **size as u64),
            Value::Count(count) => write_number(f, u64::from(**count)),
            Value::Switch(switch) => f.write_str(if **switch { "on" } else { "off" }),
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

/// `17`, `8K`, `1M`.
fn parse_number(word: &str) -> Option<u64> {
    let (digits, unit) = match word.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => match word.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, 1 << 20),
            None => (word, 1),
        },
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(unit)
}

fn write_number(f: &mut fmt::Formatter<'_>, number: u64) -> fmt::Result {
    match number {
        0 => f.write_str("0"),
        n if n % (1 << 20) == 0 => write!(f, "{}M", n >> 20),
        n if n % (1 << 10) == 0 => write!(f, "{}K", n >> 10),
        n => write!(f, "{n}"),
    }
}

impl fmt::Display for DesignConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        f.write_str(name)?;
        let mut shape = *self;
        let mut default = DesignConfig::all().into_iter().find(|it| it.name() == name);
        let defaults = default.iter_mut().flat_map(|it| it.options());
        for ((option, value), (_, default)) in shape.options().into_iter().zip(defaults) {
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
        let design = config.name();
        for word in words {
            let (option, given) = word.split_once('=').unwrap_or((word, ""));
            let mut options = config.options();
            let Some((option, value)) = options.iter_mut().find(|it| it.0 == option) else {
                let legal: Vec<_> = options.iter().map(|it| it.0).collect();
                return Err(ParseDesignError::Option {
                    design,
                    option: option.into(),
                    legal: legal.join(", "),
                });
            };
            if !value.set(given) {
                return Err(ParseDesignError::Value {
                    option,
                    value: given.into(),
                    legal: value.legal(),
                });
            }
        }
        Ok(config.checked()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyDesign, TranslationDesign};
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
            ("hierarchical,entries=8G", &["entries=8G", "8K"]),
            ("hierarchical,entries=99999999999999999999", &["entries=9"]),
            ("hierarchical,offset=yes", &["offset=yes", "on or off"]),
            ("hierarchical,entries=3", &["3 entries", "power of two"]),
            ("hierarchical,entries=64,line=128", &["lines of 128", "64"]),
            ("hierarchical,entries=64,ways=128", &["128 ways", "1 to 64"]),
            ("hierarchical,prefetch=0", &["0 entries", "1 to 1024"]),
        ] {
            let error = text.parse::<DesignConfig>().unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{text:?}: no {part:?} in {error:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(crate::testing::seeded())]
        #[test]
        fn what_it_prints_as_is_read_back(
            shift in 0usize..29, line in 0usize..11, ways in 0usize..29, offset in any::<bool>(), prefetch in 1u32..1025,
        ) {
            let cache = CacheConfig::default()
                .with_entries(1 << shift)
                .with_line_entries(1 << line.min(shift))
                .with_ways(1 << ways.min(shift - line.min(shift)))
                .with_offset_per_process(offset);
            let config = DesignConfig::Hierarchical(HierarchicalConfig::from(cache).with_prefetch(prefetch));
            prop_assert_eq!(config.to_string().parse(), Ok(config));
        }
    }
}
