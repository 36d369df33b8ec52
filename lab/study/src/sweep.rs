//! Lists of values, and the product of all of them.

use std::collections::HashSet;

use mapwire_translation::{DesignConfig, ParseDesignError, PinLimit, PinRules, Policy};

use crate::config::Configuration;

/// Values to try of each option. An empty list leaves the option as the design has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sweep {
    /// Designs, each perhaps with options of its own.
    pub designs: Vec<DesignConfig>,
    /// Options of designs by name, each with its values as text. An option that a design does not have leaves the design as it
    /// is.
    pub options: Vec<(&'static str, Vec<String>)>,
    /// Limits on pinned pages of a process.
    pub limits: Vec<PinLimit>,
    /// Policies for unpinning. They do not matter where nothing is unpinned: without a limit, in designs whose tables grow.
    pub policies: Vec<Policy>,
    /// Pages that a check miss pins.
    pub prepins: Vec<u64>,
}

/// A list that makes no configurations.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SweepError {
    /// A value that the design does not take.
    #[error("--{option} {value}, for {design}: {cause}")]
    Value {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// The design's name.
        design: &'static str,
        /// What is wrong.
        cause: ParseDesignError,
    },
    /// No design has the option.
    #[error("--{option} does not apply: none of {designs} has such an option")]
    Option {
        /// The option.
        option: &'static str,
        /// The designs.
        designs: String,
    },
    /// Values that do not go together.
    #[error("{text} cannot be built: {cause}")]
    Together {
        /// The design and its options.
        text: String,
        /// What is wrong.
        cause: ParseDesignError,
    },
}

impl Sweep {
    /// All configurations, designs slowest, then options in their order, then limits, policies, and pre-pinning. None is there
    /// twice.
    ///
    /// # Errors
    /// A value that does not suit.
    pub fn configurations(&self) -> Result<Vec<Configuration>, SweepError> {
        let designs = match self.designs.as_slice() {
            [] => &[DesignConfig::default()],
            designs => designs,
        };
        for (option, values) in &self.options {
            if !values.is_empty() && !designs.iter().any(|design| has(*design, option)) {
                let names: Vec<_> = designs.iter().map(|design| design.name()).collect();
                return Err(SweepError::Option {
                    option,
                    designs: names.join(", "),
                });
            }
        }
        let mut all = Vec::new();
        for design in designs {
            // Values are put together as text and checked as a whole: one by one they may not suit the defaults of the others.
            let mut texts = vec![design.to_string()];
            for (option, values) in &self.options {
                if values.is_empty() || !has(*design, option) {
                    continue;
                }
                for value in values {
                    check_alone(*design, option, value)?;
                }
                texts = texts
                    .iter()
                    .flat_map(|text| {
                        values
                            .iter()
                            .map(move |value| format!("{text},{option}={value}"))
                    })
                    .collect();
            }
            for text in texts {
                all.push(
                    text.parse::<DesignConfig>()
                        .map_err(|cause| SweepError::Together { text, cause })?,
                );
            }
        }
        let mut seen = HashSet::new();
        let product = all.into_iter().flat_map(|design| {
            self.rules(design)
                .into_iter()
                .map(move |rules| Configuration { design, rules })
        });
        Ok(product
            .filter(|configuration| seen.insert(*configuration))
            .collect())
    }

    /// Rules of pinning for the design. Where nothing is ever unpinned, one policy stands for all.
    fn rules(&self, design: DesignConfig) -> Vec<PinRules> {
        let mut all = Vec::new();
        for &limit in or(&self.limits, &[PinLimit::Unlimited]) {
            let rules = PinRules::default().with_limit(limit);
            let matters = Configuration { design, rules }.has_policy();
            let policies = if matters { &self.policies[..] } else { &[] };
            for &policy in or(policies, &[Policy::Lru]) {
                for &prepin in or(&self.prepins, &[1]) {
                    all.push(rules.with_policy(policy).with_prepin_pages(prepin));
                }
            }
        }
        all
    }
}

fn or<'a, T>(list: &'a [T], default: &'a [T]) -> &'a [T] {
    if list.is_empty() { default } else { list }
}

/// Whether the design has the option.
fn has(design: DesignConfig, option: &str) -> bool {
    let tried = format!("{},{option}=", design.name()).parse::<DesignConfig>();
    !matches!(tried, Err(ParseDesignError::Option { .. }))
}

/// A value that is none of the option at all is told apart from values that do not suit each other.
fn check_alone(design: DesignConfig, option: &'static str, value: &str) -> Result<(), SweepError> {
    match format!("{},{option}={value}", design.name()).parse::<DesignConfig>() {
        Err(cause @ ParseDesignError::Value { .. }) => Err(SweepError::Value {
            option,
            value: value.to_owned(),
            design: design.name(),
            cause,
        }),
        _ => Ok(()),
    }
}

/// Designs from one word, in which commas part designs as well as their options: what has a `=` belongs to the design before.
///
/// # Errors
/// What is no design.
pub fn parse_designs(text: &str) -> Result<Vec<DesignConfig>, ParseDesignError> {
    let mut designs: Vec<String> = Vec::new();
    for word in text.split(',') {
        match designs.last_mut() {
            Some(design) if word.contains('=') => {
                design.push(',');
                design.push_str(word);
            }
            _ => designs.push(word.to_owned()),
        }
    }
    designs.iter().map(|design| design.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn the_product_of_all_lists_has_every_configuration_once() {
        let sweep = Sweep {
            options: vec![
                ("entries", list(&["1K", "2K", "1024"])),
                ("ways", list(&["1", "4"])),
            ],
            limits: vec![PinLimit::Unlimited, PinLimit::Pages(9)],
            policies: vec![Policy::Lru, Policy::Mru],
            ..Sweep::default()
        };
        let all = sweep.configurations().unwrap();
        // 2 sizes × 2 ways × (no limit + a limit with 2 policies)
        assert_eq!(all.len(), 12);
        assert_eq!(all[0].to_string(), "hierarchical,entries=1K");
        assert_eq!(
            all[2].to_string(),
            "hierarchical,entries=1K limit=9 policy=mru"
        );
        assert_eq!(
            all[11].to_string(),
            "hierarchical,entries=2K,ways=4 limit=9 policy=mru"
        );
    }

    #[test]
    fn a_table_of_fixed_size_has_a_row_for_each_policy_without_a_limit() {
        let sweep = Sweep {
            designs: parse_designs("per-process,entries=64,hierarchical").unwrap(),
            policies: vec![Policy::Lru, Policy::Mru],
            ..Sweep::default()
        };
        let all = sweep.configurations().unwrap();
        let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
        let rows = [
            "per-process,entries=64 policy=lru",
            "per-process,entries=64 policy=mru",
            "hierarchical",
        ];
        assert_eq!(texts, rows);
    }

    #[test]
    fn values_are_checked_together_not_against_each_others_defaults() {
        let sweep = Sweep {
            options: vec![
                ("entries", list(&["64"])),
                ("line", list(&["32"])),
                ("ways", list(&["2"])),
            ],
            ..Sweep::default()
        };
        assert_eq!(
            sweep.configurations().unwrap()[0].to_string(),
            "hierarchical,entries=64,ways=2,line=32"
        );
        let sweep = Sweep {
            options: vec![("entries", list(&["64"])), ("ways", list(&["128"]))],
            ..Sweep::default()
        };
        let error = sweep.configurations().unwrap_err().to_string();
        assert!(
            error.contains("entries=64,ways=128") && error.contains("128 ways do not divide"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_value_or_option_is_named() {
        let error = |option, value: &str| {
            let options = vec![(option, list(&[value]))];
            Sweep {
                options,
                ..Sweep::default()
            }
            .configurations()
            .unwrap_err()
            .to_string()
        };
        assert!(error("entries", "many").starts_with("--entries many"));
        assert!(error("entries", "3000").contains("3000 entries"));
        assert!(error("offset", "yes").contains("on or off"));
        assert!(error("colour", "red").contains("--colour does not apply"));
    }

    #[test]
    fn commas_part_designs_and_their_options() {
        let designs = parse_designs("hierarchical,entries=1K,ways=2,hierarchical").unwrap();
        let texts: Vec<_> = designs.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["hierarchical,entries=1K,ways=2", "hierarchical"]);
        assert!(parse_designs("hierarchical,fast").is_err());
        assert!(parse_designs("").is_err());
    }
}
