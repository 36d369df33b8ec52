//! The rules as data: the order of the layers, what may be used from outside, where unsafe code may be.

/// A crate's place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the package.
    pub name: &'static str,
    /// Folder, from the workspace's root.
    pub folder: &'static str,
}

const fn place(name: &'static str, folder: &'static str) -> Place {
    Place { name, folder }
}

/// All crates, top to bottom: each may use those that come before it. Those that are planned have their place already.
pub const ORDER: &[Place] = &[
    place("mapwire-testing", "tests/testing"),
    place("mapwire-wire", "firmware/wire"),
    place("mapwire-seal", "firmware/seal"),
    place("mapwire-translation", "firmware/translation"),
    place("mapwire-nic", "firmware/nic"),
    place("mapwire-vmmc", "services/vmmc"),
    place("mapwire-dsm", "services/dsm"),
    place("mapwire-gms", "services/gms"),
    place("mapwire-rpc", "services/rpc"),
    place("mapwire-node", "services/node"),
    place("mapwire-settings", "settings"),
    place("mapwire-console", "console"),
    place("mapwire-host", "machine/host"),
    place("mapwire-pager", "machine/pager"),
    place("mapwire-segment", "machine/segment"),
    place("mapwire-transport", "machine/transport"),
    place("mapwire-names", "machine/names"),
    place("mapwire-launch", "machine/launch"),
    place("mapwire-driver", "machine/driver"),
    place("mapwire", "mapwire"),
    place("mapwire-trace", "lab/trace"),
    place("mapwire-study", "lab/study"),
    place("mapwire-sim", "lab/sim"),
    place("mapwire-lab", "lab/cli"),
    place("mapwire-c", "bindings/c"),
    place("mapwire-far", "bindings/far"),
    place("mapwire-rpc-c", "bindings/rpc"),
    place("mapwire-python", "bindings/python"),
    place("mapwire-bench", "bench"),
    place("mapwire-cli", "cli"),
    place("mapwire-apps", "apps"),
    place("mapwire-layering", "tests/layering"),
];

/// Folders of crates that call no operating system.
pub const PURE: &[&str] = &["firmware/", "services/"];

/// Folders of the laboratory, which runs the firmware without this computer.
pub const LAB: &[&str] = &["lab/"];

/// Folders that the laboratory never uses.
pub const NOT_FOR_LAB: &[&str] = &["machine/", "mapwire/"];

/// What pure crates may use from outside: crates without `std`.
pub const OUTSIDE_PURE: &[&str] = &["blake2", "ring", "snow", "thiserror", "zerocopy"];

/// What pure crates may use from outside in their tests, besides.
pub const OUTSIDE_PURE_TESTS: &[&str] = &["proptest"];

/// What other crates may use from outside.
pub const OUTSIDE: &[&str] = &[
    "base64",
    "blake2",
    "bytemuck",
    "bytes",
    "cbindgen",
    "clap",
    "clap_complete",
    "clap_mangen",
    "crc32fast",
    "httparse",
    "if-addrs",
    "indicatif",
    "io-uring",
    "libc",
    "libloading",
    "libm",
    "libmimalloc-sys",
    "loom",
    "lz4_flex",
    "memchr",
    "parquet",
    "plotly",
    "prometheus-client",
    "proptest",
    "ratatui",
    "rustix",
    "serde",
    "serde_json",
    "shlex",
    "snow",
    "strsim",
    "tempfile",
    "thiserror",
    "toml",
    "tracing",
    "ureq",
    "wide",
    "xxhash-rust",
    "zerocopy",
];

/// A place where unsafe code is allowed: a file, and what the attribute stands before in it (`file` for the file as a whole).
pub type UnsafePlace = (&'static str, &'static str);

/// All places where unsafe code is allowed, by file.
pub const UNSAFE_PLACES: &[UnsafePlace] = &[
    ("apps/src/phase.rs", "file"),
    ("bindings/c/src/lib.rs", "mod allocation"),
    ("bindings/c/src/lib.rs", "mod atomics"),
    ("bindings/c/src/lib.rs", "mod buffer"),
    ("bindings/c/src/lib.rs", "mod collective"),
    ("bindings/c/src/lib.rs", "mod counters"),
    ("bindings/c/src/lib.rs", "mod counted"),
    ("bindings/c/src/lib.rs", "mod events"),
    ("bindings/c/src/lib.rs", "mod export"),
    ("bindings/c/src/lib.rs", "mod failure"),
    ("bindings/c/src/lib.rs", "mod far"),
    ("bindings/c/src/lib.rs", "mod files"),
    ("bindings/c/src/lib.rs", "mod growing"),
    ("bindings/c/src/lib.rs", "mod heap"),
    ("bindings/c/src/lib.rs", "mod import"),
    ("bindings/c/src/lib.rs", "mod memory"),
    ("bindings/c/src/lib.rs", "mod node"),
    ("bindings/c/src/lib.rs", "mod notify"),
    ("bindings/c/src/lib.rs", "mod parts"),
    ("bindings/c/src/lib.rs", "mod polling"),
    ("bindings/c/src/lib.rs", "mod requests"),
    ("bindings/c/src/lib.rs", "mod shared"),
    ("bindings/c/src/lib.rs", "mod status"),
    ("bindings/c/src/lib.rs", "mod sync"),
    ("bindings/c/src/lib.rs", "mod version"),
    ("bindings/c/src/lib.rs", "mod victims"),
    ("bindings/c/src/lib.rs", "mod waiting"),
    ("bindings/far/src/lib.rs", "mod c_library"),
    ("bindings/far/src/lib.rs", "mod calls"),
    ("bindings/far/src/lib.rs", "mod descriptors"),
    ("bindings/far/src/lib.rs", "mod ending"),
    ("bindings/far/src/lib.rs", "mod fork"),
    ("machine/segment/src/sync/tests/mod.rs", "mod models"),
    ("bindings/far/src/lib.rs", "mod heap"),
    ("bindings/far/src/lib.rs", "mod inner"),
    ("bindings/far/src/lib.rs", "mod libraries"),
    ("bindings/far/src/lib.rs", "mod locks"),
    ("bindings/far/src/lib.rs", "mod maps"),
    ("bindings/far/src/lib.rs", "mod moves"),
    ("bindings/far/src/lib.rs", "mod start"),
    ("bindings/far/src/lib.rs", "mod state"),
    ("bindings/far/src/lib.rs", "mod threads"),
    ("bindings/rpc/src/lib.rs", "mod client"),
    ("bindings/rpc/src/lib.rs", "mod create"),
    ("bindings/rpc/src/lib.rs", "mod forks"),
    ("bindings/rpc/src/lib.rs", "mod once"),
    ("bindings/rpc/src/lib.rs", "mod register"),
    ("bindings/rpc/src/lib.rs", "mod rpcbind"),
    ("bindings/rpc/src/lib.rs", "mod simple"),
    ("bindings/rpc/src/lib.rs", "mod tirpc"),
    ("bindings/rpc/src/lib.rs", "mod transport"),
    ("bindings/rpc/src/lib.rs", "mod xdr"),
    ("bench/src/main.rs", "mod raw"),
    ("bench/src/mutex/mod.rs", "mod pthread"),
    ("bench/src/peers/mod.rs", "mod library"),
    ("bench/src/far/mod.rs", "mod bare"),
    ("bench/src/heap/mod.rs", "mod mimalloc"),
    ("bench/src/shared/mod.rs", "mod raw_fault"),
    ("bench/src/main.rs", "mod words"),
    ("cli/src/doctor/mod.rs", "mod doors"),
    ("cli/src/run/mod.rs", "mod signals"),
    ("cli/src/run/mod.rs", "mod spawn"),
    ("machine/driver/src/lib.rs", "mod mover"),
    ("machine/driver/src/lib.rs", "mod spin"),
    ("machine/host/src/faults/tests/conformance.rs", "file"),
    ("machine/host/src/faults/tests/delivery.rs", "file"),
    ("machine/host/src/faults/mod.rs", "mod signals"),
    ("machine/host/src/faults/mod.rs", "mod stillness"),
    ("machine/host/src/faults/mod.rs", "mod touch"),
    ("machine/host/src/faults/mod.rs", "mod uffd_abi"),
    ("machine/host/src/lib.rs", "mod exiting"),
    ("machine/host/src/lib.rs", "mod mapping"),
    ("machine/host/src/lib.rs", "mod masking"),
    ("machine/host/src/lib.rs", "mod own_words"),
    ("machine/host/src/lib.rs", "mod procmap"),
    ("machine/host/src/lib.rs", "mod scheduling"),
    ("machine/host/src/memory/buffer.rs", "fn copy_between"),
    ("machine/host/src/memory/changes.rs", "fn compare"),
    ("machine/host/src/memory/mod.rs", "mod adoption"),
    ("machine/host/src/memory/mod.rs", "mod forks"),
    ("machine/host/src/memory/mod.rs", "mod raw"),
    ("machine/host/src/memory/tests.rs", "fn a_forked_child_that_drops_its_copy_revokes_nothing"),
    ("machine/host/src/pinning/mod.rs", "mod sys"),
    ("machine/host/src/waiting/mod.rs", "mod either"),
    ("machine/host/src/processes.rs", "fn a_child_owns_what_it_makes_and_nothing_of_its_parent"),
    ("machine/launch/src/lib.rs", "mod inherited"),
    ("machine/launch/src/pmix/mod.rs", "mod library"),
    ("machine/pager/src/faults/mod.rs", "mod uffd"),
    ("machine/pager/src/lib.rs", "mod frames"),
    ("machine/pager/src/lib.rs", "mod revive"),
    ("machine/pager/src/tests/memory.rs", "file"),
    ("machine/segment/src/lib.rs", "mod forked"),
    ("machine/segment/src/sync/tests/mod.rs", "mod models"),
    ("machine/transport/src/lib.rs", "mod payload"),
    ("machine/transport/src/net/tests.rs", "fn a_forked_child_seals_nothing_sends_nothing_and_takes_nothing"),
    ("machine/transport/src/ofi/mod.rs", "mod sys"),
    ("machine/transport/src/shm/mod.rs", "mod loom_tests"),
    ("machine/transport/src/shm/mod.rs", "mod prefetch"),
    ("machine/transport/src/shm/mod.rs", "mod ring"),
    ("machine/transport/src/udp/mod.rs", "mod sys"),
    ("mapwire/src/far/mod.rs", "mod slice"),
    ("mapwire/src/lib.rs", "mod raw"),
    ("mapwire/src/lib.rs", "mod shared"),
    ("mapwire/src/lib.rs", "mod slice"),
    ("mapwire/tests/jobs/harness/denials.rs", "fn end_at_once"),
    ("mapwire/src/export.rs", "fn export_range"),
    ("mapwire/tests/jobs/main.rs", "mod allocations"),
    ("mapwire/tests/jobs/main.rs", "mod forks"),
    ("mapwire/tests/jobs/main.rs", "mod one_host"),
    ("mapwire/tests/jobs/main.rs", "mod sharing"),
    ("mapwire/tests/jobs/main.rs", "mod signals"),
    ("mapwire/tests/jobs/parting.rs", "fn end_late"),
    ("tests/testing/src/lib.rs", "mod children"),
];

/// Folders of what a user runs, whose files are opened for writing in one module.
pub const COMMANDS: &[&str] = &["bench/src/", "cli/src/", "console/src/", "lab/", "machine/", "mapwire/src/"];

/// A file that opens others for writing by itself, and why no link of another user leads it astray.
pub type WritingPlace = (&'static str, &'static str);

/// All such files.
pub const WRITING_PLACES: &[WritingPlace] = &[
    ("bench/src/heap/passing.rs", "memory of the process that measures, in /proc"),
    ("bench/src/job.rs", THE_LAUNCHERS),
    ("cli/src/run/group.rs", "a control group, which the kernel has made"),
    ("cli/src/see/jobs.rs", "memory of a process, in /proc"),
    ("console/src/pages.rs", "makes folders alone; its files are whole ones"),
    ("console/src/whole_file/mod.rs", "the module"),
    ("lab/trace/src/convert/sort.rs", "a new file, which loses its name at once"),
    ("machine/host/src/private_folder.rs", "in a folder that no other user can reach into"),
    ("machine/names/src/secret.rs", "a new file, which replaces none"),
    ("machine/pager/src/store/layers.rs", "a file without a name"),
];

const THE_LAUNCHERS: &str = "memory of the launcher, in /proc";
