//! Lists of values, and the product of all of them.

use std::collections::HashSet;
use std::str::FromStr;

use mapwire_settings::{DesignText, ParseDesignError, parse_design, size};
use mapwire_translation::{DesignConfig, PinLimit, PinRules, Policy};

use crate::choosers::UnpinPolicy;
use crate::config::Configuration;
use crate::cost::Equation;

/// Values to try of each option. An empty list leaves the option as the design has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sweep {
    /// Designs, each perhaps with options of its own.
    pub designs: Vec<DesignConfig>,
    /// Options of designs by name, each with its values as text. An option that a design does not have leaves the design as it
    /// is.
    pub options: Vec<(&'static str, Vec<String>)>,
    /// Limits on pinned pages of a process.
    pub limits: Vec<Limit>,
    /// Policies for unpinning. They do not matter where nothing is unpinned: without a limit, in designs whose tables grow.
    pub policies: Vec<UnpinPolicy>,
    pub prepins: Vec<u64>,
}

/// A limit on the pinned pages of a process. As text `none`, a size (`4MiB`), or a fraction (`1/16`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    Is(PinLimit),
    /// A part of the largest footprint that a process has, rounded up to whole pages.
    Share {
        parts: u64,
        /// of so many equal parts.
        of: u64,
    },
}

impl Limit {
    /// The limit, where the largest footprint of a process has so many pages.
    pub fn of_footprint(self, pages: u64) -> PinLimit {
        match self {
            Limit::Is(limit) => limit,
            Limit::Share { parts, of } => {
                let part = (u128::from(pages) * u128::from(parts)).div_ceil(u128::from(of));
                PinLimit::Pages(u64::try_from(part).unwrap_or(u64::MAX).max(1))
            }
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Limit::Is(PinLimit::Unlimited));
        }
        if let Some((parts, of)) = text.split_once('/') {
            let number = |text: &str| text.parse().ok().filter(|number| (1..10_000).contains(number));
            return match (number(parts), number(of)) {
                (Some(parts), Some(of)) if parts <= of => Ok(Limit::Share { parts, of }),
                _ => Err(format!(
                    "`{text}` is not a part of a footprint; write a fraction above 0 and up to 1 with numbers below 10000: 1/16, 3/4"
                )),
            };
        }
        let bytes = size::parse(text).map_err(|error| error.to_string())?;
        let limit = PinLimit::from_bytes(bytes).map_err(|error| error.to_string())?;
        Ok(Limit::Is(limit))
    }
}

/// A list that makes no configurations.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SweepError(String);

impl Sweep {
    /// Whether a limit is a part of a footprint.
    pub fn needs_footprint(&self) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| matches!(limit, Limit::Share { .. }))
    }

    /// All configurations, designs slowest, then options in their order, then limits, policies, and pre-pinning. None is there
    /// twice. `footprint_pages` is the largest footprint of a process, of which limits may be parts.
    pub fn configurations(&self, footprint_pages: u64) -> Result<Vec<Configuration>, SweepError> {
        let designs = match self.designs.as_slice() {
            [] => &[DesignConfig::default()],
            designs => designs,
        };
        for (option, values) in &self.options {
            if !values.is_empty() && !designs.iter().any(|design| has(*design, option)) {
                let names: Vec<_> = designs.iter().map(|design| design.name()).collect();
                let names = names.join(", ");
                return Err(SweepError(format!("--{option} does not apply: none of {names} has such an option")));
            }
        }
        let mut all = Vec::new();
        for design in designs {
            // Values are put together as text and checked as a whole: one by one they may not suit the defaults of the others.
            let mut texts = vec![DesignText(*design).to_string()];
            for (option, values) in &self.options {
                if values.is_empty() || !has(*design, option) {
                    continue;
                }
                for value in values {
                    check_alone(*design, option, value)?;
                }
                texts = texts
                    .iter()
                    .flat_map(|text| values.iter().map(move |value| format!("{text},{option}={value}")))
                    .collect();
            }
            for text in texts {
                let design = parse_design(&text);
                all.push(design.map_err(|cause| SweepError(format!("{text} cannot be built: {cause}")))?);
            }
        }
        let mut product = Vec::new();
        for design in all {
            product.extend(self.with_rules(design, footprint_pages)?);
        }
        let mut seen = HashSet::new();
        product.retain(|configuration| seen.insert(*configuration));
        Ok(product)
    }

    /// The design with all rules of pinning. Where nothing is ever unpinned, one policy stands for all.
    fn with_rules(&self, design: DesignConfig, footprint_pages: u64) -> Result<Vec<Configuration>, SweepError> {
        let mut all = Vec::new();
        for limit in or(&self.limits, &[Limit::Is(PinLimit::Unlimited)]) {
            let rules = PinRules::default().with_limit(limit.of_footprint(footprint_pages));
            let configuration = Configuration::new(design).with_rules(rules);
            let checks = matches!(configuration.equation(), Equation::Utlb { .. });
            let matters = configuration.has_policy();
            let policies = if matters { &self.policies[..] } else { &[] };
            for &policy in or(policies, &[UnpinPolicy::Library(Policy::Lru)]) {
                if matches!(policy, UnpinPolicy::Application(_)) && !checks {
                    return Err(SweepError(format!(
                        "--policy {policy}, for {}: it pins on a miss, and its host does not see the uses that the policy goes by; \
                         choose lru, mru, lfu, mfu or random, or another design",
                        design.name()
                    )));
                }
                for &prepin in or(&self.prepins, &[1]) {
                    let rules = rules.with_prepin_pages(prepin);
                    all.push(configuration.with_rules(rules).with_policy(policy));
                }
            }
        }
        Ok(all)
    }
}

fn or<'a, T>(list: &'a [T], default: &'a [T]) -> &'a [T] {
    if list.is_empty() { default } else { list }
}

fn has(design: DesignConfig, option: &str) -> bool {
    let tried = parse_design(&format!("{},{option}=", design.name()));
    !matches!(tried, Err(ParseDesignError::Option { .. }))
}

/// An invalid value of one option is told apart from values that do not suit each other.
fn check_alone(design: DesignConfig, option: &'static str, value: &str) -> Result<(), SweepError> {
    match parse_design(&format!("{},{option}={value}", design.name())) {
        Err(cause @ ParseDesignError::Value { .. }) => {
            Err(SweepError(format!("--{option} {value}, for {}: {cause}", design.name())))
        }
        _ => Ok(()),
    }
}

/// Designs from one word, in which commas part designs as well as their options: what has a `=` belongs to the design before.
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
    designs.iter().map(|design| parse_design(design)).collect()
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
            options: vec![("entries", list(&["1K", "2K", "1024"])), ("ways", list(&["1", "4"]))],
            limits: list(&["none", "1/111"]).iter().map(|it| it.parse().unwrap()).collect(),
            policies: list(&["lru", "mru"]).iter().map(|it| it.parse().unwrap()).collect(),
            ..Sweep::default()
        };
        let all = sweep.configurations(1000).unwrap();
        // 2 sizes × 2 ways × (no limit + a limit with 2 policies)
        assert_eq!(all.len(), 12);
        assert_eq!(all[0].to_string(), "hierarchical,entries=1K");
        assert_eq!(all[2].to_string(), "hierarchical,entries=1K limit=10 policy=mru");
        assert_eq!(all[11].to_string(), "hierarchical,entries=2K,ways=4 limit=10 policy=mru");
    }

    #[test]
    fn parts_of_a_footprint_are_rounded_up_to_whole_pages_and_are_never_nothing() {
        for (text, footprint, pages) in
            [("1/16", 4096, 256), ("1/3", 100, 34), ("1/16", 3, 1), ("1/1", 7, 7), ("4MiB", 9, 1024)]
        {
            let limit: Limit = text.parse().unwrap();
            assert_eq!(limit.of_footprint(footprint), PinLimit::Pages(pages), "{text}");
        }
        assert_eq!("none".parse(), Ok(Limit::Is(PinLimit::Unlimited)));
        for text in ["0/4", "5/4", "1/0", "a/b", "1/2/3", "-1/4", "1/10000", "half", "100", ""] {
            let error = text.parse::<Limit>().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn an_application_chooses_only_where_the_library_sees_uses() {
        let sweep = Sweep {
            designs: parse_designs("interrupt").unwrap(),
            limits: vec![Limit::Is(PinLimit::Pages(9))],
            policies: vec!["sweep".parse().unwrap()],
            ..Sweep::default()
        };
        let error = sweep.configurations(0).unwrap_err().to_string();
        assert!(error.starts_with("--policy sweep, for interrupt: it pins on a miss"), "{error}");
    }

    #[test]
    fn a_table_of_fixed_size_has_a_row_for_each_policy_without_a_limit() {
        let sweep = Sweep {
            designs: parse_designs("per-process,entries=64,hierarchical").unwrap(),
            policies: vec!["lru".parse().unwrap(), "optimum".parse().unwrap()],
            ..Sweep::default()
        };
        let all = sweep.configurations(1000).unwrap();
        let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
        let rows = ["per-process,entries=64 policy=lru", "per-process,entries=64 policy=optimum", "hierarchical"];
        assert_eq!(texts, rows);
    }

    #[test]
    fn values_are_checked_together_not_against_each_others_defaults() {
        let sweep = Sweep {
            options: vec![("entries", list(&["64"])), ("line", list(&["32"])), ("ways", list(&["2"]))],
            ..Sweep::default()
        };
        assert_eq!(sweep.configurations(1000).unwrap()[0].to_string(), "hierarchical,entries=64,ways=2,line=32");
        let sweep = Sweep { options: vec![("entries", list(&["64"])), ("ways", list(&["128"]))], ..Sweep::default() };
        let error = sweep.configurations(1000).unwrap_err().to_string();
        assert!(error.contains("entries=64,ways=128") && error.contains("128 ways do not divide"), "{error}");
    }

    #[test]
    fn a_wrong_value_or_option_is_named() {
        let error = |option, value: &str| {
            let options = vec![(option, list(&[value]))];
            Sweep { options, ..Sweep::default() }.configurations(1000).unwrap_err().to_string()
        };
        assert!(error("entries", "many").starts_with("--entries many"));
        assert!(error("entries", "3000").contains("3000 entries"));
        assert!(error("offset", "yes").contains("on or off"));
        assert!(error("colour", "red").contains("--colour does not apply"));
    }

    #[test]
    fn commas_part_designs_and_their_options() {
        let designs = parse_designs("hierarchical,entries=1K,ways=2,hierarchical").unwrap();
        let texts: Vec<_> = designs.iter().map(|it| DesignText(*it).to_string()).collect();
        assert_eq!(texts, ["hierarchical,entries=1K,ways=2", "hierarchical"]);
        assert!(parse_designs("hierarchical,fast").is_err());
        assert!(parse_designs("").is_err());
    }
}
