//! A configuration of a study.

use std::fmt;

use mapwire_translation::{CacheConfig, DesignConfig, PinLimit, PinRules};

/// A design and how a process pins: one row of a study.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Configuration {
    /// The NIC's side.
    pub design: DesignConfig,
    /// The library's side.
    pub rules: PinRules,
}

impl Configuration {
    /// The design with unlimited pinned pages, nothing pinned ahead.
    pub fn new(design: DesignConfig) -> Self {
        Configuration {
            design,
            rules: PinRules::default(),
        }
    }

    /// The same with other rules of pinning.
    #[must_use]
    pub fn with_rules(self, rules: PinRules) -> Self {
        Configuration { rules, ..self }
    }

    /// The cache of the NIC, if the design has one for all processes.
    pub fn cache(&self) -> Option<CacheConfig> {
        match self.design {
            DesignConfig::Hierarchical(config) => Some(config.cache),
            _ => None,
        }
    }

    /// Entries that a miss fetches.
    pub fn prefetch(&self) -> u64 {
        match self.design {
            DesignConfig::Hierarchical(config) => u64::from(config.prefetch),
            _ => 1,
        }
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.design)?;
        if let PinLimit::Pages(pages) = self.rules.limit {
            write!(f, " limit={pages} policy={}", self.rules.policy)?;
        }
        if self.rules.prepin_pages > 1 {
            write!(f, " prepin={}", self.rules.prepin_pages)?;
        }
        Ok(())
    }
}
