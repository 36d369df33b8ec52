//! Tests with several processes, hosts and hostile peers. `descriptors` lowers a limit of its process,
//! `rendezvous_attack` counts its descriptors, and Miri runs `ring`.

mod ofi_processes;
mod ring_processes;
mod udp;
mod udp_hosts;
