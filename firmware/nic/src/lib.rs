//! mapwire-nic
