//! Linker options of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number is `MW_ABI` of version.rs: it grows when something is removed or changed, not when something is added.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmapwire.so.0");
    // The library has threads, thread-local values and signal handlers, so `dlclose` must leave it where it is.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
