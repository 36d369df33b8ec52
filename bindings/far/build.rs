//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Memory of the program lies in it, and threads run in it, so that `dlclose` must leave it where it is.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The allocator within calls a function of its own.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=mmap");
}
