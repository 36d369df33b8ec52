//! mapwire-c
