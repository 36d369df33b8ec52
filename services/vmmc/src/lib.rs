//! mapwire-vmmc
