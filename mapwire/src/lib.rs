//! mapwire
