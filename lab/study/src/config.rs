//! A configuration of a study.

use std::fmt;

use mapwire_translation::{CacheConfig, DesignConfig, PinLimit, PinRules};

use crate::cost::Equation;

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

    /// Entries of the NIC's cache or table.
    pub fn entries(&self) -> Option<usize> {
        self.cache().map(|cache| cache.entries)
    }

    /// By which equation a lookup costs.
    pub fn equation(&self) -> Equation {
        match self.design {
            DesignConfig::Hierarchical(_) => Equation::Utlb {
                prefetch: self.prefetch(),
                prepin: self.rules.prepin_pages,
            },
            _ => Equation::Interrupt,
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
