//! Linker options of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The program's memory lies in it, and threads run in it, so `dlclose` must leave it where it is.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The allocator inside calls its own function.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=mmap");
}
