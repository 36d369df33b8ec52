//! mapwire-driver
