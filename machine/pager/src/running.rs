//! A pager's threads, and their shared state.

use std::sync::Arc;

use crate::core::Core;
use crate::error::PagerError;
use crate::faults::handler::Handlers;

#[derive(Debug)]
pub(crate) struct Running {
    /// Joined before `core` is dropped.
    handlers: Handlers,
    core: Arc<Core>,
}

impl Running {
    pub(crate) fn start(core: Core) -> Result<Self, PagerError> {
        let core = Arc::new(core);
        Ok(Self { handlers: Handlers::start(&core)?, core })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn handlers(&self) -> &Handlers {
        &self.handlers
    }
}
