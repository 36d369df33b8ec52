//! Far memory for programs as they are: `libmapwire_far.so`, which `mapwire far` preloads.
//!
//! It stands in front of the C library's `malloc`, `mmap` and their like. What a program allocates lies in one range of address
//! space of which a limited part is in RAM ([`mapwire_host::paging`]). Files, stacks and what programs map with special flags stay
//! where they were.
//!
//! | module | what it is |
//! |---|---|
//! | `settings` | the variables that `mapwire far` sets |
//! | `state` | whether far memory is on, and the calls of the program that it serves |
//! | `fork` | what a forked child gets |
//! | `space` | the range of addresses, and who has which part of it |
//! | `ranges` | which parts of it are free, or locked |
//! | `maps` | `mmap`, `munmap`, `madvise` |
//! | `moves` | `mremap` |
//! | `locks` | `mlock`, `mlockall` and their like |
//! | `descriptors` | `close`, `close_range`, `dup2` and their like |
//! | `heap` | `malloc` and its like, by mimalloc, which maps its memory through `maps` |
//! | `inner` | the C library's own allocator, for this library's memory, which must never be far |
//! | `threads` | `pthread_create` |
//! | `ending` | `_exit` |
//! | `libraries` | `dlopen` |
//! | `report` | figures at the end of the program |
//!
//! # Memory of the library itself
//! The threads that serve page faults must touch no far memory, or they would wait for themselves. All that Rust code here allocates
//! comes from the C library's own allocator, whose `brk` and `mmap` nobody stands in front of.
//!
//! Without its variables the library passes every call on.
#![deny(unsafe_code)]
// The functions that programs call are found by their names, and no module of Rust uses them.
#![allow(unreachable_pub)]

#[allow(unsafe_code)]
mod descriptors;
#[allow(unsafe_code)]
mod ending;
#[allow(unsafe_code)]
mod fork;
#[allow(unsafe_code)]
mod heap;
#[allow(unsafe_code)]
mod inner;
#[allow(unsafe_code)]
mod libraries;
#[allow(unsafe_code)]
mod locks;
#[allow(unsafe_code)]
mod maps;
#[allow(unsafe_code)]
mod moves;
mod ranges;
mod report;
mod settings;
mod space;
#[allow(unsafe_code)]
mod state;
#[allow(unsafe_code)]
mod threads;

#[global_allocator]
static ALLOCATOR: inner::Inner = inner::Inner;
