//! User settings: `MAPWIRE_RPC`, and the variables of all programs that use mapwire.

use std::sync::OnceLock;
use std::time::Duration;

use mapwire::NodeConfig;
use mapwire::rpc::RpcConfig;

/// Which calls of a program use mapwire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Those that name `mapwire` as their network; and servers of other networks also serve this one.
    Offer,
    /// Also those of clients that name another network, to servers of this host that mapwire reaches.
    Prefer,
    /// Only those that name `mapwire`.
    Asked,
}

/// Value of `MAPWIRE_RPC`: `offer` (the default), `prefer` or `asked`.
pub(crate) fn usage() -> Use {
    static USE: OnceLock<Use> = OnceLock::new();
    *USE.get_or_init(|| {
        let value = std::env::var("MAPWIRE_RPC").unwrap_or_default();
        parse(&value).unwrap_or_else(|| {
            crate::log::warn(&format!("MAPWIRE_RPC=`{value}`: expected offer, prefer or asked; taken as offer"));
            Use::Offer
        })
    })
}

fn parse(value: &str) -> Option<Use> {
    match value {
        "" | "offer" => Some(Use::Offer),
        "prefer" => Some(Use::Prefer),
        "asked" => Some(Use::Asked),
        _ => None,
    }
}

/// Configuration of nodes. A rank of a `mapwire run` job is not a rank of a server's job.
pub(crate) fn node_config() -> Result<NodeConfig, String> {
    crate::log::start();
    let variable = |name: &str| match name {
        "MAPWIRE_JOB" | "MAPWIRE_RANK" => None,
        _ => std::env::var(name).ok(),
    };
    NodeConfig::from_variables(variable).map_err(|error| error.to_string())
}

/// Memory that this process lends its peers: records of `MAPWIRE_RPC_RECORD` bytes, of which two fit at a time.
pub(crate) fn rpc_config() -> RpcConfig {
    let mut config = RpcConfig::default();
    if let Some(bytes) = record_bytes() {
        config.max_record_bytes = bytes;
        config.area_bytes = 2 * bytes;
    }
    config
}

/// The longest record that the user has set, if any.
fn record_bytes() -> Option<u64> {
    static BYTES: OnceLock<Option<u64>> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let value = std::env::var("MAPWIRE_RPC_RECORD").ok()?;
        match mapwire_settings::size::parse(&value) {
            Ok(bytes) if (4096..=MOST_BYTES).contains(&bytes) => Some(bytes),
            _ => {
                crate::log::warn(&format!(
                    "MAPWIRE_RPC_RECORD=`{value}`: expected a size from 4K to 1G; the longest record stays 4 MiB"
                ));
                None
            }
        }
    })
}

/// Upper bound of that setting.
const MOST_BYTES: u64 = 1 << 30;

/// Default time that a new client waits for its server.
pub(crate) const MEETING: Duration = Duration::from_secs(25);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_sets_is_one_of_three_words() {
        assert_eq!(parse(""), Some(Use::Offer));
        assert_eq!(parse("offer"), Some(Use::Offer));
        assert_eq!(parse("prefer"), Some(Use::Prefer));
        assert_eq!(parse("asked"), Some(Use::Asked));
        assert_eq!(parse("yes"), None);
    }
}
