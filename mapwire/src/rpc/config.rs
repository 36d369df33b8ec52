//! Settings of remote procedure calls.

use core::time::Duration;

use mapwire_rpc::DEFAULT_MAX_RECORD_BYTES;
use mapwire_wire::HandlerId;

/// The handler id of calls, unless told otherwise.
const HANDLER: HandlerId = HandlerId(32);

/// How a rank calls and is called.
#[derive(Clone, Debug)]
pub struct RpcConfig {
    /// The handler id; the same in all ranks that call each other.
    pub handler: HandlerId,
    /// Bytes of the longest arguments or results that this rank takes. Longer ones fail at their sender.
    pub max_record_bytes: u64,
    /// Bytes of memory that each peer is lent for its records, at least one of the longest. It takes memory as far as it is used.
    pub area_bytes: u64,
    /// Bytes of the longest arguments or results that travel in a message to a rank of this host.
    pub inline_bytes: usize,
    /// How long a call waits for its reply at most, and a connection for its peer; `None`: as long as `MAPWIRE_TIMEOUT` says (30 s).
    pub timeout: Option<Duration>,
}

impl Default for RpcConfig {
    fn default() -> Self {
        Self {
            handler: HANDLER,
            max_record_bytes: DEFAULT_MAX_RECORD_BYTES,
            area_bytes: 2 * DEFAULT_MAX_RECORD_BYTES,
            inline_bytes: 2048,
            timeout: None,
        }
    }
}
