//! This rank's end of all calls, as programs hold it.

use std::sync::Arc;

use mapwire_host::waiting::now_ns;
use mapwire_rpc::{Config, Counters, ENVELOPE_BYTES, MAX_AUTH_BYTES, PeerCredentials, Rpc as Service};

use super::caller::Caller;
use super::config::RpcConfig;
use super::error::Error;
use super::inner::Inner;
use super::server::Server;
use crate::node::Node;

/// Bytes of a message besides its body at most: its envelope, six words, a credential and a verifier.
const MOST_HEADER_BYTES: usize = ENVELOPE_BYTES + 24 + 2 * (8 + MAX_AUTH_BYTES);

/// This rank's end of calls. Cheap to clone; connections close with the last clone, and calls that are under way then end with an error.
#[derive(Clone, Debug)]
pub struct Rpc {
    pub(super) inner: Arc<Inner>,
}

impl Rpc {
    /// Opens this rank's end of calls.
    ///
    /// # Errors
    /// Settings that do not fit each other; a handler id that is not from 16 to 255 or taken.
    pub fn open(node: &Node, mut config: RpcConfig) -> Result<Self, Error> {
        if config.area_bytes < config.max_record_bytes {
            return Err(Error::ShortArea { area_bytes: config.area_bytes, max_record_bytes: config.max_record_bytes });
        }
        node.check_process()?;
        let longest = node.engine().lock().nic().max_message_bytes();
        let most = longest.saturating_sub(MOST_HEADER_BYTES);
        config.inline_bytes = config.inline_bytes.min(most);
        let service =
            Service::new(Config { max_record_bytes: config.max_record_bytes, session: now_ns(), ..Config::default() });
        node.register_service(config.handler, service)?;
        let node = node.without_group();
        let timeout = config.timeout.unwrap_or(node.engine().timeout());
        Ok(Self { inner: Arc::new(Inner::new(node, config, timeout)) })
    }

    /// Connects to a rank that serves calls, once it does.
    ///
    /// # Errors
    /// A rank outside the job, or this one; [`Error::NoAnswer`], [`Error::Gone`]; no memory for records.
    pub fn caller(&self, rank: usize, program: u32, version: u32) -> Result<Caller, Error> {
        Caller::connect(&self.inner, rank, program, version)
    }

    /// Serves a version of a program from here on. All programs of a rank have one queue of calls, which all its [`Server`]s take from.
    ///
    /// # Errors
    /// [`Error::Served`].
    pub fn serve(&self, program: u32, version: u32) -> Result<Server, Error> {
        let server = self.server();
        server.register(program, version)?;
        Ok(server)
    }

    /// A server without programs of its own yet.
    #[must_use]
    pub fn server(&self) -> Server {
        Server::new(&self.inner)
    }

    /// Says what the kernel says of the process at a rank: SYS credentials of its calls are held against it from here on. `None`: nothing
    /// is known, as of ranks of a job, which all belong to one user.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn set_credentials(&self, rank: usize, credentials: Option<PeerCredentials>) -> Result<(), Error> {
        let node = self.inner.node_of(rank)?;
        self.inner.call(|service| service.set_credentials(node, credentials))
    }

    /// What has happened so far.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.inner.call(|service| *service.counters())
    }

    /// Ends the connection to a rank: calls under way by it end with an error here and there. A later call connects anew.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn disconnect(&self, rank: usize) -> Result<(), Error> {
        let node = self.inner.node_of(rank)?;
        self.inner.call(|service| service.close(node))?;
        self.inner.tend()
    }

    /// The node whose calls these are.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.inner.node
    }
}
