//! A configuration of a study.

use std::fmt;

use mapwire_settings::DesignText;
use mapwire_translation::{CacheConfig, DesignConfig, PinLimit, PinRules, Policy};

use crate::choosers::{Chooser, UnpinPolicy};
use crate::cost::Equation;
use crate::counts::{Counts, PathMisses};

/// A design and how a process pins: one row of a study.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Configuration {
    pub design: DesignConfig,
    pub rules: PinRules,
    /// Who chooses what is unpinned, if that is not the library: then the policy of `rules` is the application's.
    pub chooser: Option<Chooser>,
}

impl Configuration {
    /// The design with unlimited pinned pages, nothing pinned ahead.
    pub fn new(design: DesignConfig) -> Self {
        Configuration { design, rules: PinRules::default(), chooser: None }
    }

    #[must_use]
    pub fn with_rules(self, rules: PinRules) -> Self {
        Configuration { rules, ..self }
    }

    #[must_use]
    pub fn with_policy(self, policy: UnpinPolicy) -> Self {
        let (policy, chooser) = match policy {
            UnpinPolicy::Library(policy) => (policy, None),
            UnpinPolicy::Application(chooser) => (Policy::Application, Some(chooser)),
        };
        Configuration { rules: self.rules.with_policy(policy), chooser, ..self }
    }

    pub fn policy(&self) -> UnpinPolicy {
        let library = UnpinPolicy::Library(self.rules.policy);
        self.chooser.map_or(library, UnpinPolicy::Application)
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

    pub fn equation(&self) -> Equation {
        match self.design {
            DesignConfig::Hierarchical(_) | DesignConfig::SharedCache(_) | DesignConfig::PerProcess(_) => {
                Equation::Utlb { prefetch: self.prefetch(), prepin: self.rules.prepin_pages }
            }
            DesignConfig::DynamicHandle(_) => Equation::DynamicHandle,
            _ => Equation::Interrupt,
        }
    }

    /// Whether a policy for unpinning matters: pages are unpinned under a limit, where a table is full, and above a
    /// high-water mark.
    pub fn has_policy(&self) -> bool {
        self.rules.limit != PinLimit::Unlimited || unpins_by_policy(self.design)
    }

    /// The same but for its entries, of which it has none: what configurations have in common that differ only there.
    #[must_use]
    pub fn without_entries(mut self) -> Self {
        *match &mut self.design {
            DesignConfig::PerProcess(config) => &mut config.entries,
            DesignConfig::Hierarchical(config) => &mut config.cache.entries,
            DesignConfig::SharedCache(config) => &mut config.cache.entries,
            DesignConfig::Interrupt(config) => &mut config.cache.entries,
            DesignConfig::DynamicHandle(config) => &mut config.cache.entries,
        } = 0;
        self
    }

    /// What it would count with NIC memory without end, from what it counted of sends and fetches that touch so many pages: lines
    /// and table entries stay from their first use on. `None` where that is not known: where pages are limited or pinned or fetched
    /// ahead, and where a line may lack pages.
    pub fn with_endless_memory(&self, counts: &Counts, known_pages: u64) -> Option<Counts> {
        let limited = match self.design {
            DesignConfig::Hierarchical(config) => config.tables_in_memory.is_some(),
            DesignConfig::DynamicHandle(config) => config.high_water_bytes.is_some(),
            _ => false,
        };
        let long_lines = self.cache().is_some_and(|cache| cache.line_entries > 1)
            && !matches!(self.design, DesignConfig::DynamicHandle(_));
        let ahead = self.prefetch() > 1 || self.rules.prepin_pages > 1;
        if limited || long_lines || ahead || self.rules.limit != PinLimit::Unlimited {
            return None;
        }
        let misses = PathMisses { send_other: 0, receive_other: 0, ..counts.misses };
        let nic_misses = misses.sum();
        let endless = Counts { misses, nic_misses, ..*counts };
        Some(match self.design {
            DesignConfig::PerProcess(_) => {
                Counts { check_misses: known_pages, pins: known_pages, unpins: 0, ..*counts }
            }
            DesignConfig::Interrupt(_) => Counts { interrupts: nic_misses, pins: nic_misses, unpins: 0, ..endless },
            DesignConfig::DynamicHandle(_) => Counts { interrupts: nic_misses, ..endless },
            _ => endless,
        })
    }

    /// Whether a fully associative cache beside the real one tells capacity from conflict misses. Not where the entries are of a
    /// table that the library orders, and not where a miss decides what is pinned under a limit.
    pub fn has_causes(&self) -> bool {
        let unlimited = self.rules.limit == PinLimit::Unlimited;
        match self.design {
            DesignConfig::Hierarchical(_) => true,
            DesignConfig::SharedCache(config) => config.prefetch == 1 && config.cache.line_entries == 1,
            DesignConfig::Interrupt(config) => unlimited && !config.cache_per_process && config.fill_pages == 1,
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
        write!(f, "{}", DesignText(self.design))?;
        if let PinLimit::Pages(pages) = self.rules.limit {
            write!(f, " limit={pages}")?;
        }
        if self.has_policy() {
            write!(f, " policy={}", self.policy())?;
        }
        if self.rules.prepin_pages > 1 {
            write!(f, " prepin={}", self.rules.prepin_pages)?;
        }
        Ok(())
    }
}
