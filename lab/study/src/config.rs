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

    /// The cache of the NIC that all processes share, if the design has one.
    pub fn cache(&self) -> Option<CacheConfig> {
        match self.design {
            DesignConfig::Hierarchical(config) => Some(config.cache),
            DesignConfig::SharedCache(config) => Some(config.cache),
            DesignConfig::Interrupt(config) if !config.cache_per_process => Some(config.cache),
            DesignConfig::DynamicHandle(config) => Some(config.cache),
            _ => None,
        }
    }

    /// Entries of the NIC's cache, or of a process's table or cache.
    pub fn entries(&self) -> Option<usize> {
        match self.design {
            DesignConfig::PerProcess(config) => Some(config.entries),
            DesignConfig::Interrupt(config) => Some(config.cache.entries),
            _ => self.cache().map(|cache| cache.entries),
        }
    }

    /// Entries that a miss fetches; of a line that is filled as a whole, one.
    pub fn prefetch(&self) -> u64 {
        match self.design {
            DesignConfig::Hierarchical(config) => u64::from(config.prefetch),
            DesignConfig::SharedCache(config) => u64::from(config.prefetch),
            DesignConfig::Interrupt(config) => u64::from(config.fill_pages),
            _ => 1,
        }
    }

    /// By which equation a lookup costs.
    pub fn equation(&self) -> Equation {
        match self.design {
            DesignConfig::Hierarchical(_)
            | DesignConfig::SharedCache(_)
            | DesignConfig::PerProcess(_) => Equation::Utlb {
                prefetch: self.prefetch(),
                prepin: self.rules.prepin_pages,
            },
            DesignConfig::DynamicHandle(_) => Equation::DynamicHandle,
            _ => Equation::Interrupt,
        }
    }

    /// Whether a policy for unpinning matters: pages are unpinned under a limit, where a table is full, and above a
    /// high-water mark.
    pub fn has_policy(&self) -> bool {
        self.rules.limit != PinLimit::Unlimited || unpins_by_policy(self.design)
    }

    /// Whether a fully associative cache beside the real one tells capacity from conflict misses. Not where the entries are of a
    /// table that the library orders, and not where a miss decides what is pinned under a limit.
    pub fn has_causes(&self) -> bool {
        let unlimited = self.rules.limit == PinLimit::Unlimited;
        match self.design {
            DesignConfig::Hierarchical(_) => true,
            DesignConfig::SharedCache(config) => {
                config.prefetch == 1 && config.cache.line_entries == 1
            }
            DesignConfig::Interrupt(config) => {
                unlimited && !config.cache_per_process && config.fill_pages == 1
            }
            DesignConfig::DynamicHandle(_) => unlimited,
            _ => false,
        }
    }
}

/// Whether pages are unpinned without a limit: where a table of fixed size is full, or above a high-water mark.
fn unpins_by_policy(design: DesignConfig) -> bool {
    match design {
        DesignConfig::PerProcess(_) => true,
        DesignConfig::DynamicHandle(config) => config.high_water_bytes.is_some(),
        _ => false,
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.design)?;
        if let PinLimit::Pages(pages) = self.rules.limit {
            write!(f, " limit={pages}")?;
        }
        if self.has_policy() {
            write!(f, " policy={}", self.rules.policy)?;
        }
        if self.rules.prepin_pages > 1 {
            write!(f, " prepin={}", self.rules.prepin_pages)?;
        }
        Ok(())
    }
}
