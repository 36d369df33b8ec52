//! Linker options of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number grows when something is removed or changed, not when something is added.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmapwire_rpc.so.0");
    // The library has threads and thread-local values, so `dlclose` must leave it where it is.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
