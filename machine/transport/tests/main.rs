//! Tests with several processes, hosts and hostile peers. `descriptors` lowers a limit of its process, and Miri runs `ring`.

mod ofi_processes;
mod rendezvous_attack;
mod ring_processes;
mod udp;
mod udp_hosts;
