//! What a provider of libfabric finds in the environment of ranks.

use std::ffi::OsString;

/// How `tcp;ofi_rxm` keeps messages that nobody waits for. Left to itself it fills 85 MB a rank, 4096 buffers of 16 KB and a pool to send
/// from. Ranks post a receive for each packet that may come, so those buffers stay empty, and longer messages go from and into the ranks'
/// own. The limit is the usual one: ranks whose limits differ would refuse each other.
const TCP: [(&str, &str); 3] =
    [("FI_OFI_RXM_BUFFER_SIZE", "1024"), ("FI_OFI_RXM_EAGER_LIMIT", "16384"), ("FI_OFI_RXM_MSG_RX_SIZE", "256")];

/// Variables for ranks besides `settings`. None if the user has set one of them, by `is_set`: they belong together.
pub(super) fn variables(settings: &[(String, String)], is_set: impl Fn(&str) -> bool) -> Vec<(OsString, OsString)> {
    let is_tcp = settings
        .iter()
        .any(|(name, value)| name == "MAPWIRE_TRANSPORT" && matches!(&**value, "ofi:tcp" | "ofi:tcp;ofi_rxm"));
    if !is_tcp || TCP.iter().any(|(name, _)| is_set(name)) {
        return Vec::new();
    }
    TCP.map(|(name, value)| (name.into(), value.into())).into()
}
