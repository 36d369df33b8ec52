//! mapwire-layering
