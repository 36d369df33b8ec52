//! Pages made usable by the NIC.
