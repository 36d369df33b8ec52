//! Far memory for unmodified programs: `libmapwire_far.so`, which `mapwire far` preloads.
//!
//! It replaces the C library's `malloc`, `mmap` and similar calls. The program's allocations lie in one range of address space with a
//! limited part in RAM ([`mapwire_pager`]). Files, stacks and mappings with special flags stay where they were.
//!
//! | module | what it is |
//! |---|---|
//! | `settings` | the variables that `mapwire far` sets |
//! | `start` | turns far memory on before the program runs |
//! | `state` | whether far memory is on |
//! | `fork` | far memory in a forked child |
//! | `space` | the range of addresses, and its assigned parts |
//! | `ranges` | which parts of it are free, or locked |
//! | `calls` | the failures of calls for memory, and whole pages |
//! | `maps` | `mmap`, `munmap`, `madvise` |
//! | `moves` | `mremap` |
//! | `locks` | `mlock`, `mlockall` and their like |
//! | `descriptors` | `close`, `close_range`, `dup2` and their like |
//! | `heap` | `malloc` and its like, by mimalloc, which maps its memory through `maps` |
//! | `inner` | the C library's own allocator, for this library's memory, which must never be far |
//! | `threads` | `pthread_create` |
//! | `ending` | `_exit` |
//! | `libraries` | `dlopen` |
//! | `c_library` | the C library's own functions |
//! | `report` | figures at the end of the program |
//!
//! # Memory of the library itself
//! The threads that serve page faults must touch no far memory, or they would wait for themselves. All Rust code here allocates from the C
//! library's own allocator, whose `brk` and `mmap` are not replaced.
//!
//! Without its variables the library passes every call on.
#![deny(unsafe_code)]
// Programs find these functions by their names; no Rust module uses them.
#![allow(unreachable_pub)]

#[allow(unsafe_code)]
mod c_library;
#[allow(unsafe_code)]
mod calls;
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
mod start;
#[allow(unsafe_code)]
mod state;
#[allow(unsafe_code)]
mod threads;

#[global_allocator]
static ALLOCATOR: inner::Inner = inner::Inner;
